package record_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine/record"
)

// The published example of golang.org/x/mod/sumdb/note.
const (
	exampleSigner   = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
	exampleVerifier = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
	exampleText     = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
	exampleNote     = exampleText + "\n— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)

func TestNotesMatchOtherImplementations(t *testing.T) {
	s, err := record.NewSigner(exampleSigner + "\n")
	if err != nil {
		t.Fatal(err)
	}
	note, err := s.Sign(exampleText)
	if err != nil || note != exampleNote {
		t.Errorf("signed: %q, %v", note, err)
	}
	if s.Export() != exampleSigner || s.Verifier().String() != exampleVerifier || s.Name() != "PeterNeumann" {
		t.Errorf("%s", s.Verifier())
	}
	v, err := record.NewVerifier(exampleVerifier)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := record.OpenNote(exampleNote, v); err != nil || text != exampleText {
		t.Errorf("opened: %q, %v", text, err)
	}
}

func TestOnlyTheKeyOpensANote(t *testing.T) {
	s, other := signer(t, "a"), signer(t, "a")
	note, err := s.Sign("text\n")
	if err != nil {
		t.Fatal(err)
	}
	countersigned, err := other.Sign("text\n")
	if err != nil {
		t.Fatal(err)
	}
	both := note + strings.TrimPrefix(countersigned, "text\n\n")
	tests := map[string]struct {
		note string
		keys []*record.Verifier
		want error
	}{
		"its key":           {note, []*record.Verifier{s.Verifier()}, nil},
		"one of the keys":   {note, []*record.Verifier{other.Verifier(), s.Verifier()}, nil},
		"one of two":        {both, []*record.Verifier{other.Verifier()}, nil},
		"another key":       {note, []*record.Verifier{other.Verifier()}, record.ErrSignature},
		"no key":            {note, nil, record.ErrSignature},
		"another text":      {strings.Replace(note, "text", "tixt", 1), []*record.Verifier{s.Verifier()}, record.ErrSignature},
		"no signature":      {"text\n", []*record.Verifier{s.Verifier()}, record.ErrNote},
		"half a signature":  {note[:len(note)-3] + "\n", []*record.Verifier{s.Verifier()}, record.ErrNote},
		"nothing":           {"", []*record.Verifier{s.Verifier()}, record.ErrNote},
		"control character": {"te\x1bxt\n\n" + note, []*record.Verifier{s.Verifier()}, record.ErrNote},
	}
	for name, tt := range tests {
		if text, err := record.OpenNote(tt.note, tt.keys...); !errors.Is(err, tt.want) || (err == nil && text != "text\n") {
			t.Errorf("%s: %q, %v; want %v", name, text, err, tt.want)
		}
	}
	if _, err := s.Sign("no line feed"); !errors.Is(err, record.ErrNote) {
		t.Errorf("signed what cannot be split again: %v", err)
	}
}

// A file of notes may be cut off in the middle of one.
func TestTruncatedNoteIsRejected(t *testing.T) {
	note, err := signer(t, "a").Sign("text\n")
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(note) - 1 {
		if text, err := record.ReadNoteText(note[:cut] + "\n"); !errors.Is(err, record.ErrNote) {
			t.Errorf("cut at %d: %q, %v", cut, text, err)
		}
	}
}

func TestUnusableKeysAreRefused(t *testing.T) {
	private := map[string]string{
		"empty": "", "a public key": exampleVerifier, "another id": strings.Replace(exampleSigner, "c74f", "c74e", 1),
		"another name": strings.Replace(exampleSigner, "Peter", "Piter", 1), "cut": exampleSigner[:60], "hex": strings.Repeat("ab", 32),
		"two lines": exampleSigner + "\n" + exampleSigner, "no PEM": "-----BEGIN NOTHING-----",
	}
	for name, text := range private {
		if _, err := record.NewSigner(text); !errors.Is(err, record.ErrSigningKey) {
			t.Errorf("private, %s: %v", name, err)
		}
	}
	public := map[string]string{
		"empty": "", "a private key": exampleSigner, "another algorithm": strings.Replace(exampleVerifier, "ARpc", "Ahpc", 1),
		"another name": strings.Replace(exampleVerifier, "Peter", "Piter", 1), "no id": "PeterNeumann++ARpc", "no base64": "PeterNeumann+c74f20a3+!",
	}
	for name, text := range public {
		if _, err := record.NewVerifier(text); !errors.Is(err, record.ErrSigningKey) {
			t.Errorf("public, %s: %v", name, err)
		}
	}
	for _, name := range []string{"", "a b", "a+b", "a\nb", strings.Repeat("x", 101)} {
		if _, err := record.GenerateSigner(name); !errors.Is(err, record.ErrSigningKey) {
			t.Errorf("the name %q: %v", name, err)
		}
	}
}

func TestKeysAsPEM(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	b, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	s, err := record.NewSigner(string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: a})))
	if err != nil {
		t.Fatal(err)
	}
	v, err := record.NewVerifier(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: b})))
	if err != nil {
		t.Fatal(err)
	}
	note, err := s.Sign("x\n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := record.OpenNote(note, v); err != nil {
		t.Error(err)
	}
	if _, err := record.NewVerifier(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: a}))); !errors.Is(err, record.ErrSigningKey) {
		t.Errorf("a private key called public: %v", err)
	}
}

func TestAnchorText(t *testing.T) {
	a := record.Anchor{
		Origin: "gavel-1", Size: 3, Root: record.TreeHash{1, 2, 3}, Number: 7, Previous: record.HashNote("x"),
		Time: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), Events: 12,
	}
	const want = "gavel-1\n3\nAQIDAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\nanchor 7\n" +
		"previous 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\ntime 2026-01-02T03:04:05.000006Z\nevents 12\n"
	if got := a.Text(); got != want {
		t.Errorf("got %q", got)
	}
	first := a
	first.Number, first.Previous = 1, ""
	for _, a := range []record.Anchor{a, first} {
		if got, err := record.ParseAnchor(a.Text()); err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	for what, replacement := range map[string][2]string{
		"a sign": {"\n3\n", "\n+3\n"}, "a zero": {"anchor 7", "anchor 07"}, "number 0": {"anchor 7", "anchor 0"}, "no number": {"anchor 7", "ankor 7"},
		"a short root": {"AQID", ""}, "another zone": {"05.000006Z", "05.000006+00:00"}, "one more line": {"events 12\n", "events 12\nmore\n"},
		"a negative size": {"\n3\n", "\n-3\n"}, "one line less": {"events 12\n", ""},
	} {
		changed := strings.Replace(want, replacement[0], replacement[1], 1)
		if _, err := record.ParseAnchor(changed); !errors.Is(err, record.ErrAnchor) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestHeadsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tree record.Tree
		heads := make([]record.Head, rapid.IntRange(0, 20).Draw(t, "n"))
		for i := range heads {
			heads[i] = record.Head{
				Instance: rapid.StringN(1, 20, 60).Draw(t, "id"), Seq: rapid.Int64Range(1, 1<<40).Draw(t, "seq"),
				Hash: record.HashNote(rapid.String().Draw(t, "hash")),
			}
			leaf, err := heads[i].Leaf()
			if err != nil {
				t.Fatal(err)
			}
			tree.Append(leaf)
		}
		encoded := record.EncodeHeads(tree, heads)
		after, got, err := record.DecodeHeads(encoded)
		if err != nil || after.Root() != tree.Root() || len(got) != len(heads) {
			t.Fatalf("%s: %v", encoded, err)
		}
		for i := range heads {
			if got[i] != heads[i] {
				t.Fatalf("got %+v, want %+v", got[i], heads[i])
			}
		}
		cut := rapid.IntRange(0, len(encoded)-1).Draw(t, "cut")
		if _, _, err := record.DecodeHeads(encoded[:cut]); !errors.Is(err, record.ErrAnchor) && cut != len(encoded)-1 {
			t.Fatalf("cut at %d of %d: %v", cut, len(encoded), err)
		}
	})
	for name, h := range map[string]record.Head{
		"no instance": {Seq: 1, Hash: record.HashNote("")}, "no event": {Instance: "a", Hash: record.HashNote("")}, "no hash": {Instance: "a", Seq: 1},
	} {
		if _, err := h.Leaf(); !errors.Is(err, record.ErrAnchor) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The text of a note is untrusted: reading it never panics, and a text that parses is
// written again byte for byte.
func FuzzAnchorNote(f *testing.F) {
	f.Add(exampleNote)
	s, err := record.NewSigner(exampleSigner)
	if err != nil {
		f.Fatal(err)
	}
	note, err := s.Sign(record.Anchor{Origin: "a", Number: 1, Time: time.Unix(0, 0)}.Text())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(note)
	f.Fuzz(func(t *testing.T, note string) {
		text, err := record.ReadNoteText(note)
		if err != nil {
			return
		}
		if _, err := record.OpenNote(note, s.Verifier()); err == nil && !strings.HasPrefix(note, text) {
			t.Error("a signed text that the note does not hold")
		}
		if a, err := record.ParseAnchor(text); err == nil && a.Text() != text {
			t.Errorf("%q", text)
		}
		_, _, _ = record.DecodeHeads([]byte(note)) // must not panic
	})
}

func signer(t *testing.T, name string) *record.Signer {
	t.Helper()
	s, err := record.GenerateSigner(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
