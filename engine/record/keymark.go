package record

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// keyMark is the second line of a key file whose stores have sealed rules. It is kept
// with the key because that is what a writer of the store cannot change: without it, a
// store whose seals were removed would pass for one that never had any.
const keyMark = "rules are sealed"

func parseKeyFile(path string, text []byte) (key []byte, marked bool, err error) {
	first, rest, _ := bytes.Cut(bytes.TrimSpace(text), []byte("\n"))
	key, err = hex.DecodeString(string(bytes.TrimSpace(first)))
	mark := string(bytes.TrimSpace(rest))
	if err != nil || len(key) != keySize || (mark != "" && mark != keyMark) {
		return nil, false, fmt.Errorf("%w: %s does not hold %d hex digits", ErrKeyFile, path, 2*keySize)
	}
	return key, mark != "", nil
}

// KeySealsRules reports whether the stores of a key file have sealed rules: then rules
// without a seal are forged.
func KeySealsRules(path string) (bool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	_, marked, err := parseKeyFile(path, text)
	return marked, err
}

// MarkKeySealsRules marks a key file as one whose stores have sealed rules, replacing the
// file as a whole.
func MarkKeySealsRules(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	key, marked, err := parseKeyFile(path, text)
	if err != nil || marked {
		return err
	}
	tmp, err := writeKey(filepath.Dir(path), key)
	if err != nil {
		return fmt.Errorf("mark the key file: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("mark the key file: %w", errors.Join(err, os.Remove(tmp)))
	}
	return syncDir(filepath.Dir(path))
}

func writeKey(dir string, key []byte) (name string, err error) {
	tmp, err := os.CreateTemp(dir, ".key-*") // mode 0600
	if err != nil {
		return "", err
	}
	_, err = tmp.WriteString(hex.EncodeToString(key) + "\n" + keyMark + "\n")
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return "", errors.Join(err, os.Remove(tmp.Name()))
	}
	return tmp.Name(), nil
}
