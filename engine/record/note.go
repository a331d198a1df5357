package record

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/mod/sumdb/note"
)

// Errors of keys and signed notes.
var (
	// ErrSigningKey: a string that is not an Ed25519 key in a supported form.
	ErrSigningKey = errors.New("unusable signing key")
	// ErrNote: a string that is not a signed note.
	ErrNote = errors.New("not a signed note")
	// ErrSignature: a note that was signed by none of the given keys.
	ErrSignature = errors.New("not signed by the key")
)

const (
	maxNote      = 64 << 10
	maxKeyName   = 100
	pemName      = "gavel" // the name of a key that was read without one
	privateLabel = "PRIVATE+KEY+"
	ed25519Note  = 1 // the algorithm's number in a signed-note key
	// shortestSignature is the length of an Ed25519 signature with its key id; every other kind is
	// longer.
	shortestSignature = 4 + ed25519.SignatureSize
)

// Signer signs notes with an Ed25519 key. It is safe for concurrent use.
type Signer struct {
	signer  note.Signer
	private string
	public  *Verifier
}

// Verifier is the public half of a Signer.
type Verifier struct {
	verifier note.Verifier
	public   string
}

// GenerateSigner creates a key. The name is part of every signature: no spaces, no plus signs,
// at most 100 bytes.
func GenerateSigner(name string) (*Signer, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate a key: %w", err)
	}
	return newSigner(name, key)
}

// NewSigner reads a private key: the text that Export returns (one line in the C2SP signed-note
// form), or PEM (PKCS #8, Ed25519), which gets the name "gavel".
func NewSigner(text string) (*Signer, error) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "-----BEGIN") {
		key, err := parsePEM[ed25519.PrivateKey](text, "PRIVATE KEY", x509.ParsePKCS8PrivateKey)
		if err != nil {
			return nil, err
		}
		return newSigner(pemName, key)
	}
	if _, err := note.NewSigner(text); err != nil {
		return nil, fmt.Errorf("%w: %w; a private key is PEM, or one complete line %sNAME+ID+KEY", ErrSigningKey, err, privateLabel)
	}
	// The library has checked the form PRIVATE+KEY+name+id+base64(algorithm, seed).
	parts := strings.SplitN(text, "+", 5)
	raw, err := base64.StdEncoding.DecodeString(parts[4])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSigningKey, err)
	}
	return newSigner(parts[2], ed25519.NewKeyFromSeed(raw[1:]))
}

func newSigner(name string, key ed25519.PrivateKey) (*Signer, error) {
	public, err := newVerifier(name, ed25519.PublicKey(key[ed25519.SeedSize:]))
	if err != nil {
		return nil, err
	}
	private := fmt.Sprintf("%s%s+%08x+%s", privateLabel, name, public.verifier.KeyHash(),
		base64.StdEncoding.EncodeToString(append([]byte{ed25519Note}, key.Seed()...)))
	signer, err := note.NewSigner(private)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSigningKey, err)
	}
	return &Signer{signer: signer, private: private, public: public}, nil
}

// NewVerifier reads a public key: the text that String returns, or PEM (PKIX, Ed25519).
func NewVerifier(text string) (*Verifier, error) {
	text = strings.TrimSpace(text)
	switch {
	case strings.HasPrefix(text, "-----BEGIN"):
		key, err := parsePEM[ed25519.PublicKey](text, "PUBLIC KEY", x509.ParsePKIXPublicKey)
		if err != nil {
			return nil, err
		}
		return newVerifier(pemName, key)
	case strings.HasPrefix(text, privateLabel):
		return nil, fmt.Errorf("%w: this is the private key; use the public one", ErrSigningKey)
	}
	verifier, err := note.NewVerifier(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w; a public key is PEM, or one complete line NAME+ID+KEY", ErrSigningKey, err)
	}
	return &Verifier{verifier, text}, nil
}

func newVerifier(name string, key ed25519.PublicKey) (*Verifier, error) {
	if len(name) > maxKeyName || strings.ContainsFunc(name, unicode.IsControl) {
		return nil, fmt.Errorf("%w: the name %q is not 1 to %d bytes without spaces and plus signs", ErrSigningKey, name, maxKeyName)
	}
	text, err := note.NewEd25519VerifierKey(name, key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSigningKey, err)
	}
	verifier, err := note.NewVerifier(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w; a name is 1 to %d bytes without spaces and plus signs", ErrSigningKey, err, maxKeyName)
	}
	return &Verifier{verifier, text}, nil
}

func parsePEM[K any](text, kind string, parse func([]byte) (any, error)) (key K, err error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil || block.Type != kind {
		return key, fmt.Errorf("%w: not a PEM block %q", ErrSigningKey, kind)
	}
	parsed, err := parse(block.Bytes)
	if err != nil {
		return key, fmt.Errorf("%w: %w", ErrSigningKey, err)
	}
	key, ok := parsed.(K)
	if !ok {
		return key, fmt.Errorf("%w: the algorithm is not Ed25519", ErrSigningKey)
	}
	return key, nil
}

// Verifier returns the public half.
func (s *Signer) Verifier() *Verifier { return s.public }

// Export returns the private key as one line. Write it only to its key file.
func (s *Signer) Export() string { return s.private }

// Name returns the name used in the signatures.
func (s *Signer) Name() string { return s.signer.Name() }

// Sign returns the note: the text, which must end with a newline, and the signature.
func (s *Signer) Sign(text string) (string, error) {
	signed, err := note.Sign(&note.Note{Text: text}, s.signer)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNote, err)
	}
	if _, err := OpenNote(string(signed), s.public); err != nil { // rejects control characters and long notes
		return "", err
	}
	return string(signed), nil
}

// Name returns the name used in the signatures.
func (v *Verifier) Name() string { return v.verifier.Name() }

// String returns the public key as one line.
func (v *Verifier) String() string { return v.public }

// ReadNoteText returns the text of a note without verifying its signatures, or ErrNote.
func ReadNoteText(signed string) (string, error) {
	text, err := OpenNote(signed)
	unverified, ok := errors.AsType[*note.UnverifiedNoteError](err)
	if !ok {
		return text, err
	}
	for _, s := range unverified.Note.UnverifiedSigs {
		if raw, err := base64.StdEncoding.DecodeString(s.Base64); err != nil || len(raw) < shortestSignature {
			return "", fmt.Errorf("%w: truncated signature", ErrNote)
		}
	}
	return unverified.Note.Text, nil
}

// OpenNote returns the text of a note that is signed with one of the keys. Signatures of
// others are skipped. It returns ErrNote or ErrSignature.
func OpenNote(signed string, keys ...*Verifier) (string, error) {
	if len(signed) > maxNote {
		return "", fmt.Errorf("%w: %d bytes", ErrNote, len(signed))
	}
	known := make([]note.Verifier, len(keys))
	for i, k := range keys {
		known[i] = k.verifier
	}
	opened, err := note.Open([]byte(signed), note.VerifierList(known...))
	if unverified, ok := errors.AsType[*note.UnverifiedNoteError](err); ok {
		return "", fmt.Errorf("%w (it is signed by %s): %w", ErrSignature, unverified.Note.UnverifiedSigs[0].Name, err)
	}
	if _, ok := errors.AsType[*note.InvalidSignatureError](err); ok {
		return "", fmt.Errorf("%w: %w", ErrSignature, err)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNote, err)
	}
	return opened.Text, nil
}
