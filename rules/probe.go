package rules

import (
	"net"
	"net/url"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
)

// ProbeSource is a health check, which fires if it fails, or takes too long. Its latency
// is the delay of the outlier.
type ProbeSource struct {
	HTTP      string        // URL; empty: TCP
	TCP       string        // HOST:PORT
	Every     time.Duration // from one check to the next
	Threshold time.Duration // of the rule; 0: none
	Timeout   time.Duration // of the rule
}

const (
	sourceProbe     = "probe"
	defaultEvery    = 10 * time.Second
	minEvery        = time.Second
	defaultCheck    = 5 * time.Second // timeout
	maxCheck        = time.Minute
	maxURL          = 2000 // bytes
	probeURLAllowed = "a URL such as http://127.0.0.1:8080/healthz, without user and password"
)

var probeKeys = []string{"http", "tcp", "every"}

// probe reads a health check, and the limits of its rule.
func (r *reader) probe(n *yaml.Node, rule map[string]entry, to *Rule) *ProbeSource {
	p := &ProbeSource{Every: defaultEvery, Timeout: defaultCheck}
	keys := r.mapping(n, sourceProbe, probeKeys)
	if keys == nil {
		return p
	}
	http, hasHTTP := keys["http"]
	tcp, hasTCP := keys["tcp"]
	switch {
	case hasHTTP == hasTCP:
		r.fail(n, "http: URL, or tcp: HOST:PORT", "probe needs one of http and tcp")
	case hasHTTP:
		p.HTTP = r.probeURL(http.value)
	default:
		p.TCP = r.probeAddress(tcp.value)
	}
	if e, ok := keys["every"]; ok {
		p.Every = r.duration(e.value, "every", minEvery, maxDuration)
	}
	if e, ok := rule["threshold"]; ok {
		p.Threshold = r.duration(e.value, "threshold", minDuration, maxCheck)
	}
	if e, ok := rule["timeout"]; ok {
		p.Timeout = r.duration(e.value, "timeout", minTimeout, maxCheck)
		r.checkOrder(e.value, Limits{p.Threshold, p.Timeout})
	}
	to.Threshold, to.Timeout = p.Threshold, p.Timeout
	return p
}

func (r *reader) probeURL(n *yaml.Node) string {
	text, ok := r.text(n, "http")
	if !ok {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil || len(text) > maxURL || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		r.fail(n, probeURLAllowed, "http: invalid URL %q", cut(text))
		return ""
	}
	return text
}

func (r *reader) probeAddress(n *yaml.Node) string {
	text, ok := r.text(n, "tcp")
	if !ok {
		return ""
	}
	host, port, err := net.SplitHostPort(text)
	number, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || bad != nil || number == 0 || host == "" || len(text) > maxURL {
		r.fail(n, "HOST:PORT, such as 127.0.0.1:5432", "tcp: invalid address %q", cut(text))
		return ""
	}
	return text
}
