package main

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/internal/listen"
)

// listenFlags configure the listener.
type listenFlags struct {
	Listen       string        `name:"listen" default:"127.0.0.1:4285" placeholder:"HOST:PORT" help:"Where to listen; port 0 takes a free one. Default: 127.0.0.1:4285, which only this machine reaches."`
	TLSCert      string        `name:"tls-cert" placeholder:"FILE" help:"The certificate (PEM, with its chain) for HTTPS. Read again when it changes."`
	TLSKey       string        `name:"tls-key" placeholder:"FILE" help:"The certificate's private key (PEM)."`
	TLSClientCA  string        `name:"tls-client-ca" placeholder:"FILE" help:"Let only clients connect that show a certificate signed by one of these (PEM). They show their token as well."`
	PlainHTTP    bool          `name:"insecure-plain-http" help:"Serve without TLS on an address that other machines can reach. For a proxy that ends TLS, or a network where nobody listens: whoever does gets the tokens."`
	AllowHost    []string      `name:"allow-host" placeholder:"HOST" help:"A name that clients call this server by, beside loopback names and the address itself. Repeatable."`
	AllowOrigin  []string      `name:"allow-origin" placeholder:"ORIGIN" help:"Let web pages of this origin call and read answers (https://app.example.org). Repeatable."`
	MaxBody      int64         `name:"max-body" default:"4194304" placeholder:"BYTES" help:"The largest body of a request. Default: 4194304."`
	MaxHeader    int           `name:"max-header" default:"32768" placeholder:"BYTES" help:"The most that a request's headers may come to. Default: 32768."`
	MaxConns     int           `name:"max-conns" default:"4096" placeholder:"N" help:"The most connections. One more closes the connection that has been idle longest. Default: 4096."`
	MaxRequests  int           `name:"max-requests" default:"2048" placeholder:"N" help:"The most requests in flight; one principal has at most half of them. Default: 2048."`
	MaxStreams   int           `name:"max-streams" default:"2048" placeholder:"N" help:"The most event streams; one principal has at most half of them. Default: 2048."`
	HeaderTime   time.Duration `name:"read-header-timeout" default:"10s" placeholder:"TIME" help:"How long the headers of a request may take. Default: 10s."`
	BodyTime     time.Duration `name:"body-timeout" default:"30s" placeholder:"TIME" help:"How long the body of a request may take. Default: 30s."`
	WriteTime    time.Duration `name:"write-timeout" default:"30s" placeholder:"TIME" help:"How long each part of an answer may take to be read. Default: 30s."`
	IdleTime     time.Duration `name:"idle-timeout" default:"2m" placeholder:"TIME" help:"How long a connection without a request stays open. Default: 2m."`
	DrainTimeout time.Duration `name:"drain-timeout" default:"30s" placeholder:"TIME" help:"How long requests in flight may go on after SIGTERM. Default: 30s."`
}

func (f listenFlags) config(log *slog.Logger) listen.Config {
	return listen.Config{
		Addr: f.Listen, Logger: log, CertFile: f.TLSCert, KeyFile: f.TLSKey, ClientCAFile: f.TLSClientCA,
		AllowedHosts: f.AllowHost, AllowedOrigins: f.AllowOrigin,
		MaxBody: f.MaxBody, MaxHeader: f.MaxHeader, MaxConns: f.MaxConns, MaxRequests: f.MaxRequests, MaxStreams: f.MaxStreams,
		ReadHeaderTimeout: f.HeaderTime, BodyTimeout: f.BodyTime, WriteTimeout: f.WriteTime, IdleTimeout: f.IdleTime,
		DrainTimeout: f.DrainTimeout,
	}
}

// check refuses what would leave an open door: no authentication, or tokens in plain
// text, on an address that other machines reach.
func (f listenFlags) check(ctx context.Context, auth string) error {
	host, _, err := net.SplitHostPort(f.Listen)
	if err != nil {
		return term.UsageErrorf("give HOST:PORT, such as 127.0.0.1:4285", "--listen: %w", err)
	}
	if loopbackOnly(ctx, host) {
		return nil
	}
	if auth == authNone {
		return term.UsageErrorf("use tokens (--auth token), or --listen 127.0.0.1:4285",
			"--auth none lets everybody in who reaches the address, and other machines reach %s", f.Listen)
	}
	if f.TLSCert == "" && !f.PlainHTTP {
		return term.UsageErrorf("give --tls-cert and --tls-key; or --insecure-plain-http, when a proxy before it ends TLS",
			"on %s tokens would travel unencrypted", f.Listen)
	}
	return nil
}

// loopbackOnly reports whether a host is this machine, whatever it resolves to.
func loopbackOnly(ctx context.Context, host string) bool {
	if addr, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return addr.Unmap().IsLoopback()
	}
	if host == "" {
		return false // every address
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(found) == 0 {
		return false
	}
	for _, addr := range found {
		if !addr.Unmap().IsLoopback() {
			return false
		}
	}
	return true
}
