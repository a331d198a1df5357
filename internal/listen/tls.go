package listen

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/internal/egress"
)

// cipherSuites are the cipher suites for TLS 1.2, all with forward secrecy and authenticated encryption. TLS 1.3 has no
// others.
var cipherSuites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// newTLS returns the TLS configuration, or nil if no certificate is configured.
func newTLS(c Config) (*tls.Config, error) {
	if c.CertFile == "" {
		return nil, nil //nolint:nilnil // plain HTTP is valid
	}
	keep := &certificate{certFile: c.CertFile, keyFile: c.KeyFile, log: c.Logger}
	if err := keep.load(); err != nil {
		return nil, fmt.Errorf("the certificate cannot be used: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, CipherSuites: cipherSuites, GetCertificate: keep.get, NextProtos: []string{"h2", "http/1.1"}}
	if c.ClientCAFile != "" {
		roots, err := egress.LoadRoots(c.ClientCAFile)
		if err != nil {
			return nil, fmt.Errorf("the CA certificates for clients cannot be used: %w", err)
		}
		config.ClientCAs = roots
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return config, nil
}

// certificate reloads its files when they change, so that it can be renewed without a restart.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	changed [2]time.Time // of the files
}

func (c *certificate) fileTimes() (out [2]time.Time, err error) {
	for i, file := range []string{c.certFile, c.keyFile} {
		info, statErr := os.Stat(file)
		if statErr != nil {
			return out, statErr
		}
		out[i] = info.ModTime()
	}
	return out, nil
}

func (c *certificate) load() error {
	changed, err := c.fileTimes()
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	c.changed = changed // an invalid one is not read for every handshake
	if err != nil {
		return err
	}
	c.current = &pair
	return nil
}

// get implements tls.Config.GetCertificate. If the new certificate is invalid, the old one remains.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if changed, err := c.fileTimes(); err == nil && changed != c.changed {
		if err := c.load(); err != nil {
			c.log.Warn("the new certificate cannot be used; the old one stays", "error", err)
		} else {
			c.log.Info("the certificate was renewed")
		}
	}
	if c.current == nil {
		return nil, errors.New("no certificate")
	}
	return c.current, nil
}
