package record

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Errors of keys and signed notes.
var (
	// ErrSigningKey: a text that is no Ed25519 key in one of the forms that are read.
	ErrSigningKey = errors.New("unusable signing key")
	// ErrNote: a text that is not a signed note.
	ErrNote = errors.New("not a signed note")
	// ErrSignature: a note that none of the given keys signed.
	ErrSignature = errors.New("not signed by the key")
)

// The forms of C2SP signed-note: what keys and signatures look like as text.
const (
	ed25519Note     = 1 // the algorithm's number
	privatePrefix   = "PRIVATE+KEY+"
	signaturePrefix = "— " // an em dash and a space
	maxNote         = 64 << 10
	// shortestSignature is that of Ed25519 behind the id of its key; every other kind is
	// longer. A shorter one was cut.
	shortestSignature = 4 + ed25519.SignatureSize
	// pemName is the name of a key that came without one.
	pemName = "gavel"
)

// Signer signs notes with an Ed25519 key. It is safe for concurrent use.
type Signer struct {
	name string
	key  ed25519.PrivateKey
}

// Verifier is the public half of a Signer.
type Verifier struct {
	name string
	id   uint32
	key  ed25519.PublicKey
}

// GenerateSigner makes a new key. The name goes into every signature: no spaces, no
// plus signs, at most 100 bytes.
func GenerateSigner(name string) (*Signer, error) {
	if err := checkKeyName(name); err != nil {
		return nil, err
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return &Signer{name: name, key: key}, nil
}

// NewSigner reads a private key: the text that Export returns (one line, as
// signed-note has it), or PEM (PKCS #8, Ed25519), whose name is "gavel".
func NewSigner(text string) (*Signer, error) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "-----BEGIN") {
		key, err := fromPEM(text, "PRIVATE KEY", x509.ParsePKCS8PrivateKey)
		if err != nil {
			return nil, err
		}
		private, ok := key.(ed25519.PrivateKey)
		if !ok {
			return nil, fmt.Errorf("%w: it is a key of another algorithm; Ed25519 is needed", ErrSigningKey)
		}
		return &Signer{name: pemName, key: private}, nil
	}
	rest, ok := strings.CutPrefix(text, privatePrefix)
	if !ok {
		return nil, fmt.Errorf("%w: a private key begins with %s or is PEM", ErrSigningKey, privatePrefix)
	}
	name, id, seed, err := splitKey(rest)
	if err != nil {
		return nil, err
	}
	if len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("%w: it holds %d bytes, not %d", ErrSigningKey, len(seed), ed25519.SeedSize)
	}
	s := &Signer{name: name, key: ed25519.NewKeyFromSeed(seed)}
	if s.Verifier().id != id {
		return nil, fmt.Errorf("%w: its parts do not belong together; copy the whole line", ErrSigningKey)
	}
	return s, nil
}

// NewVerifier reads a public key: the text that String returns, or PEM (PKIX, Ed25519).
func NewVerifier(text string) (*Verifier, error) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "-----BEGIN") {
		key, err := fromPEM(text, "PUBLIC KEY", x509.ParsePKIXPublicKey)
		if err != nil {
			return nil, err
		}
		public, ok := key.(ed25519.PublicKey)
		if !ok {
			return nil, fmt.Errorf("%w: it is a key of another algorithm; Ed25519 is needed", ErrSigningKey)
		}
		return newVerifier(pemName, public), nil
	}
	if strings.HasPrefix(text, privatePrefix) {
		return nil, fmt.Errorf("%w: this is the private half; give the public one", ErrSigningKey)
	}
	name, id, key, err := splitKey(text)
	if err != nil {
		return nil, err
	}
	if len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("%w: it holds %d bytes, not %d", ErrSigningKey, len(key), ed25519.PublicKeySize)
	}
	v := newVerifier(name, key)
	if v.id != id {
		return nil, fmt.Errorf("%w: its parts do not belong together; copy the whole line", ErrSigningKey)
	}
	return v, nil
}

// fromPEM reads the one block of a PEM text.
func fromPEM(text, kind string, parse func([]byte) (any, error)) (any, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil || block.Type != kind {
		return nil, fmt.Errorf("%w: it is no PEM block %q", ErrSigningKey, kind)
	}
	key, err := parse(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSigningKey, err)
	}
	return key, nil
}

// splitKey reads name+id+base64(algorithm||key).
func splitKey(text string) (name string, id uint32, key []byte, err error) {
	name, rest, _ := strings.Cut(text, "+")
	digits, encoded, ok := strings.Cut(rest, "+")
	if !ok {
		return "", 0, nil, fmt.Errorf("%w: a key is a line of the form NAME+ID+KEY, or PEM", ErrSigningKey)
	}
	if err := checkKeyName(name); err != nil {
		return "", 0, nil, err
	}
	number, err := strconv.ParseUint(digits, 16, 32)
	if err != nil || len(digits) != 8 {
		return "", 0, nil, fmt.Errorf("%w: its id is not 8 hex digits", ErrSigningKey)
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(raw) < 2 {
		return "", 0, nil, fmt.Errorf("%w: its last part is not base64", ErrSigningKey)
	}
	if raw[0] != ed25519Note {
		return "", 0, nil, fmt.Errorf("%w: it is of algorithm %d; Ed25519 is %d", ErrSigningKey, raw[0], ed25519Note)
	}
	return name, uint32(number), raw[1:], nil
}

func checkKeyName(name string) error {
	if name == "" || len(name) > 100 || !utf8.ValidString(name) || strings.Contains(name, "+") || strings.ContainsFunc(name, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}) {
		return fmt.Errorf("%w: its name %q is not 1 to 100 bytes without spaces and plus signs", ErrSigningKey, name)
	}
	return nil
}

func newVerifier(name string, key ed25519.PublicKey) *Verifier {
	h := sha256.New()
	h.Write([]byte(name + "\n"))
	h.Write([]byte{ed25519Note})
	h.Write(key)
	return &Verifier{name: name, id: binary.BigEndian.Uint32(h.Sum(nil)), key: key}
}

// Name is the name in the signer's signatures.
func (s *Signer) Name() string { return s.name }

// Verifier returns the public half.
func (s *Signer) Verifier() *Verifier {
	return newVerifier(s.name, bytes.Clone(s.key[ed25519.SeedSize:]))
}

// Export returns the private key as one line, for its file and for nothing else.
func (s *Signer) Export() string {
	return fmt.Sprintf("%s%s+%08x+%s", privatePrefix, s.name, s.Verifier().id,
		base64.StdEncoding.EncodeToString(append([]byte{ed25519Note}, s.key.Seed()...)))
}

// Sign returns the note: the text, which must end with a line feed, and the signature.
func (s *Signer) Sign(text string) (string, error) {
	if err := checkNoteText(text); err != nil {
		return "", err
	}
	sig := binary.BigEndian.AppendUint32(nil, s.Verifier().id)
	sig = append(sig, ed25519.Sign(s.key, []byte(text))...)
	return text + "\n" + signaturePrefix + s.name + " " + base64.StdEncoding.EncodeToString(sig) + "\n", nil
}

// Name is the name in the signatures.
func (v *Verifier) Name() string { return v.name }

// String returns the public key as one line.
func (v *Verifier) String() string {
	return fmt.Sprintf("%s+%08x+%s", v.name, v.id, base64.StdEncoding.EncodeToString(append([]byte{ed25519Note}, v.key...)))
}

func checkNoteText(text string) error {
	switch {
	case !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\n' }):
		return fmt.Errorf("%w: control characters, or not UTF-8", ErrNote)
	case !strings.HasSuffix(text, "\n"):
		return fmt.Errorf("%w: its text does not end with a line feed", ErrNote)
	case len(text) > maxNote:
		return fmt.Errorf("%w: %d bytes", ErrNote, len(text))
	}
	return nil
}

// NoteText returns the text of a note without asking who signed it. ErrNote.
func NoteText(note string) (string, error) {
	text, _, err := splitNote(note)
	return text, err
}

// OpenNote returns the text of a note that one of the keys signed. Signatures of
// others are passed over. ErrNote, ErrSignature.
func OpenNote(note string, keys ...*Verifier) (string, error) {
	text, signatures, err := splitNote(note)
	if err != nil {
		return "", err
	}
	for _, s := range signatures {
		for _, v := range keys {
			if s.name == v.name && s.id == v.id && ed25519.Verify(v.key, []byte(text), s.sig) {
				return text, nil
			}
		}
	}
	return "", fmt.Errorf("%w (it is signed by %s)", ErrSignature, signatures[0].name)
}

type signature struct {
	name string
	id   uint32
	sig  []byte
}

func splitNote(note string) (text string, signatures []signature, err error) {
	if err := checkNoteText(note); err != nil {
		return "", nil, err
	}
	cut := strings.LastIndex(note, "\n\n")
	if cut < 0 {
		return "", nil, fmt.Errorf("%w: it has no signature", ErrNote)
	}
	text = note[:cut+1]
	for line := range strings.Lines(note[cut+2:]) {
		rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), signaturePrefix)
		name, encoded, ok2 := strings.Cut(rest, " ")
		raw, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || !ok2 || err != nil || len(raw) < shortestSignature || checkKeyName(name) != nil {
			return "", nil, fmt.Errorf("%w: a signature that cannot be read", ErrNote)
		}
		signatures = append(signatures, signature{name, binary.BigEndian.Uint32(raw), raw[4:]})
	}
	if len(signatures) == 0 {
		return "", nil, fmt.Errorf("%w: it has no signature", ErrNote)
	}
	return text, signatures, nil
}
