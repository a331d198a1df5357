package serve

import "testing"

func TestListening(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"": "http://127.0.0.1:4285", "0.0.0.0:1": "http://127.0.0.1:1", "[::]:1": "http://[::1]:1", ":1": "http://127.0.0.1:1",
		"gavel.example:1": "http://gavel.example:1", "[::1]:1": "http://[::1]:1", "10.1.2.3:1": "http://10.1.2.3:1",
	} {
		if got, err := serverAddress(address); err != nil || got != want {
			t.Errorf("%q is asked at %s, %v; want %s", address, got, err, want)
		}
	}
}

func TestLoopbackOnly(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.8.9.10": true, "::1": true, "[::1]": true, "::ffff:127.0.0.1": true,
		"": false, "0.0.0.0": false, "::": false, "192.0.2.7": false, "2001:db8::1": false,
	} {
		if got := loopbackOnly(t.Context(), host); got != want {
			t.Errorf("%q: %t, want %t", host, got, want)
		}
	}
}
