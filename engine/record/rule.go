package record

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
)

// ErrRule reports a definition or a judge configuration that differs from its seal.
var ErrRule = errors.New("differs from its seal")

// RuleSeal links a rule (a version of a definition, or a revision of a judge configuration) into the
// single chain of all rules of a store. The zero value means that the rule was never sealed.
type RuleSeal struct {
	// Position numbers the rules of a store from 1, in the order in which they were made.
	Position int64 `json:"place"`
	// Prev is the Hash of the previous rule, "" for the first. All hashes are hex.
	Prev string `json:"prev"`
	// Hash covers the place, Prev and the rule.
	Hash string `json:"hash"`
	// MAC is a keyed MAC over Hash, which only a holder of the key can make; "" without a key.
	MAC string `json:"mac"`
}

// RuleChain replaces the instance id in an anchored head that is the head of the chain of rules. No instance can have
// this id.
const RuleChain = "\x00rules"

// ruleDomain separates these hashes from every other use of SHA-256.
const ruleDomain = "gavel/rule/v1"

// RuleSealer seals rules and checks seals. It is safe for concurrent use.
type RuleSealer struct{ key []byte }

// NewRuleSealer returns a RuleSealer with its own key, derived from master. Without a master key it
// makes and checks only hashes.
func NewRuleSealer(master []byte) *RuleSealer {
	if len(master) == 0 {
		return &RuleSealer{}
	}
	return &RuleSealer{key: DeriveKey(master, "gavel/rule-mac/v1")}
}

// Seal returns the seal of a rule that follows the rule with hash prev. parts is the complete content of the rule.
func (s *RuleSealer) Seal(place int64, prev string, parts ...string) RuleSeal {
	hash := hashRule(place, prev, parts)
	seal := RuleSeal{Position: place, Prev: prev, Hash: hex.EncodeToString(hash)}
	if s.key != nil {
		seal.MAC = hex.EncodeToString(s.computeMAC(hash))
	}
	return seal
}

// Check returns nil if this sealer's key sealed these parts at this place, else ErrRule. Without a key, it checks
// only the hash.
func (s *RuleSealer) Check(seal RuleSeal, parts ...string) error {
	switch {
	case seal.Position < 1:
		return fmt.Errorf("%w: it has no seal", ErrRule)
	case seal.Hash != hex.EncodeToString(hashRule(seal.Position, seal.Prev, parts)):
		return fmt.Errorf("%w: its hash does not cover it", ErrRule)
	case s.key == nil:
		return nil
	}
	hash, err := hex.DecodeString(seal.Hash)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRule, err)
	}
	mac, err := hex.DecodeString(seal.MAC)
	if err != nil || !hmac.Equal(mac, s.computeMAC(hash)) {
		return fmt.Errorf("%w: its seal was not made with this key", ErrRule)
	}
	return nil
}

func (s *RuleSealer) computeMAC(hash []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write(hash)
	return mac.Sum(nil)
}

func hashRule(place int64, prev string, parts []string) []byte {
	b := appendPart(nil, ruleDomain)
	b = binary.BigEndian.AppendUint64(b, uint64(place)) //nolint:gosec // positive
	b = appendPart(b, prev)
	for _, part := range parts {
		b = appendPart(b, part)
	}
	sum := sha256.Sum256(b)
	return sum[:]
}
