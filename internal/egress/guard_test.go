package egress_test

import (
	"net/netip"
	"testing"

	"github.com/gavel-mcp/gavel/internal/egress"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"93.184.216.34": "public", "2606:2800:220:1::1": "public", "::ffff:93.184.216.34": "public", "64:ff9b::5db8:d822": "public",
		"127.0.0.1": "private", "127.9.9.9": "private", "::1": "private", "10.1.2.3": "private", "172.31.0.1": "private", "192.168.1.1": "private",
		"169.254.1.1": "private", "fe80::1%eth0": "private", "fc00::1": "private", "fd12::1": "private", "100.64.0.1": "private", "100.127.255.255": "private",
		"198.18.0.1": "private", "192.0.2.1": "private", "240.0.0.1": "private", "255.255.255.255": "private", "0.1.2.3": "private", "fec0::1": "private",
		"::ffff:127.0.0.1": "private", "::ffff:10.0.0.1": "private", "64:ff9b::7f00:1": "private", "64:ff9b::a00:1": "private", "64:ff9b:1::1": "private",
		"2002:7f00:1::": "private", "2002:a00:1::1": "private", "::127.0.0.1": "private", "2001::1": "private", "2001:db8::1": "private",
		"0.0.0.0": "never", "::": "never", "224.0.0.1": "never", "ff02::1": "never", "169.254.169.254": "never", "::ffff:169.254.169.254": "never",
		"64:ff9b::a9fe:a9fe": "never", "fd00:ec2::254": "never", "100.100.100.200": "never", "168.63.129.16": "never", "2002:a9fe:a9fe::": "never",
		"fe80::a9fe:a9fe": "never", "fe80::a9fe:a9fe%eth0": "never", "fd00:c1::a9fe:a9fe": "never", "fd00:ec2::23": "never", "fd00:ec2::253": "never", "fd00:ec2:1::1": "never",
		"fd20:ce::254": "never", "fd00:42::42": "never", "fd00:a9fe:a9fe::1": "never", "169.254.170.23": "never", "169.254.42.42": "never", "64:ff9b:1::a9fe:a9fe": "never", "64:ff9b:1:a9fe:a9:fe00::": "never",
		"::ffff:0:a9fe:a9fe": "never", "::ffff:0:7f00:1": "private", "::ffff:0:10.0.0.1": "private", "::ffff:0:93.184.216.34": "public", "::ffff:0:0.0.0.0": "never",
		"fe80::a9fe:a9ff": "private", "fd00::a9fe:0101": "private",
	} {
		a := netip.MustParseAddr(text)
		got := "private"
		if egress.IsNeverAllowed(a) {
			got = "never"
		} else if egress.IsPublic(a) {
			got = "public"
		}
		if got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}
