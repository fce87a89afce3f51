package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tailcam/tailcam/rules"
)

// Peers are the tailcams of other machines, which tell each other of outliers in traces.
type Peers struct {
	Listen      string   // HOST:PORT, or unix:PATH; empty: nowhere
	WebConfig   string   // as in Metrics; without it, Listen is of this machine alone
	Send        []string // URLs of scheme, host and port; a name may have many addresses
	Credentials string   // path; USER:PASSWORD
	TLS         ClientTLS
}

// peersKeys are the keys of peers.
func peersKeys() []key {
	send := unset(texts("peers.send", "", "`URLs` of other machines' peers.listen, to send traces of outliers to; a name may have many addresses",
		"https://HOST:PORT, or http://HOST:PORT", setPeers))
	send.secret = true // what is refused may have a password
	return []key{
		unset(text("peers.listen", "", "`address` to take traces of other machines' outliers on; empty: none",
			"HOST:PORT, or unix: and a path", setListen(func(c *Config) *string { return &c.Peers.Listen }))),
		path("peers.web_config", "web configuration `file` of Prometheus exporters, for TLS and basic authentication of peers",
			func(c *Config) *string { return &c.Peers.WebConfig }),
		send,
		path("peers.credentials", "`file` with USER:PASSWORD for peers.send", func(c *Config) *string { return &c.Peers.Credentials }),
		path("peers.tls.ca", "`file` with the authorities that may sign the peers' certificates",
			func(c *Config) *string { return &c.Peers.TLS.CA }),
		path("peers.tls.cert", "`file` with tailcam's certificate for peers", func(c *Config) *string { return &c.Peers.TLS.Cert }),
		path("peers.tls.key", "`file` with the key of peers.tls.cert", func(c *Config) *string { return &c.Peers.TLS.Key }),
	}
}

// maxPeerURLs bounds peers.send.
const maxPeerURLs = 1024

func setPeers(c *Config, v []string) string {
	c.Peers.Send = nil
	for _, s := range v {
		u, err := url.Parse(s)
		switch {
		case err != nil || u.Scheme != "https" && u.Scheme != "http":
			return "does not begin with https:// or http://"
		case u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
			return "has more, or less, than a host and a port"
		case slices.Contains(c.Peers.Send, s):
			return "lists a URL twice"
		case len(v) > maxPeerURLs:
			return fmt.Sprintf("has more than %d URLs: use a name with many addresses", maxPeerURLs)
		}
		if port, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || port == 0 {
			return "has no port"
		}
		c.Peers.Send = append(c.Peers.Send, s)
	}
	return ""
}

// isLocal reports whether a host is this machine, by its name alone.
func isLocal(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// isOpen reports whether other machines reach an address.
func isOpen(listen string) bool {
	if listen == "" || strings.HasPrefix(listen, "unix:") {
		return false
	}
	host, _, err := net.SplitHostPort(listen)
	return err != nil || !isLocal(host)
}

// Reachable reports whether other machines reach Listen.
func (p *Peers) Reachable() bool { return isOpen(p.Listen) }

// check finds what does not go together.
func (p *Peers) check() (errs rules.Errors) {
	if p.WebConfig == "" && isOpen(p.Listen) {
		errs = append(errs, rules.Error{
			Pos: rules.Position{File: "peers.listen"}, Msg: fmt.Sprintf("anybody who reaches %s could have snapshots taken", p.Listen),
			Allowed: "peers.web_config with basic_auth_users, 127.0.0.1 or [::1], or unix: and a path",
		})
	}
	for _, s := range p.Send {
		if u, err := url.Parse(s); err == nil && u.Scheme == "http" && p.Credentials != "" && !isLocal(u.Hostname()) {
			errs = append(errs, rules.Error{
				Pos: rules.Position{File: "peers.send"}, Msg: fmt.Sprintf("%s would get the password in the clear", s),
				Allowed: "https://, or no peers.credentials",
			})
		}
	}
	return errs
}
