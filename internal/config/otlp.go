package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/tailcam/tailcam/internal/otlp"
)

// otlpKeys are the keys of otlp.
func otlpKeys() []key {
	headers := unset(pairs("otlp.headers", "`headers` of each request, such as authorization=Bearer…",
		"NAME=VALUE, with a name that HTTP allows", func(c *Config) *map[string]string { return &c.OTLP.Headers }, checkHeader))
	headers.secret = true
	return []key{
		unset(text("otlp.endpoint", "", "`URL` of an OpenTelemetry collector; empty: nothing is sent",
			"a URL, such as https://collector:4318", setOTLPEndpoint)),
		oneOf("otlp.protocol", otlp.HTTP, "OTLP `protocol`, http/protobuf or grpc", []string{otlp.HTTP, otlp.GRPC},
			func(c *Config) *string { return &c.OTLP.Protocol }),
		texts("otlp.signals", strings.Join(OTLPSignals, ","), "`signals` to send, logs (outliers) and metrics",
			strings.Join(OTLPSignals, ", "), setOTLPSignals),
		duration("otlp.interval", "1m", "`duration` between two requests with metrics", time.Second, time.Hour,
			func(c *Config) *time.Duration { return &c.OTLP.Interval }),
		text("otlp.spool", "/var/lib/tailcam/otlp", "`directory` of outliers that wait for the collector; off: they wait in memory alone",
			"a path, or off", func(c *Config, s string) string {
				if s == "off" {
					c.OTLP.Spool = ""
					return ""
				}
				return setPath(func(c *Config) *string { return &c.OTLP.Spool })(c, s)
			}),
		byteCount("otlp.quota", "64MiB", "maximum `size` of otlp.spool", 1<<20, 1<<40,
			func(c *Config) *int64 { return &c.OTLP.Quota }),
		headers,
		unset(pairs("otlp.resource", "resource `attributes`, such as deployment.environment.name=production",
			"NAME=VALUE, or NAME= to leave one out", func(c *Config) *map[string]string { return &c.OTLP.Resource },
			func(string, string) string { return "" })),
		path("otlp.tls.ca", "`file` with the authorities that may sign the collector's certificate",
			func(c *Config) *string { return &c.OTLP.TLS.CA }),
		path("otlp.tls.cert", "`file` with tailcam's certificate", func(c *Config) *string { return &c.OTLP.TLS.Cert }),
		path("otlp.tls.key", "`file` with the key of otlp.tls.cert", func(c *Config) *string { return &c.OTLP.TLS.Key }),
	}
}

// pairs is a list of names with values.
func pairs(name, usage, allowed string, field func(*Config) *map[string]string, check func(name, value string) string) key {
	return texts(name, "", usage, allowed, func(c *Config, v []string) string {
		all := map[string]string{}
		for _, s := range v {
			name, value, ok := strings.Cut(s, "=")
			name, value = strings.TrimSpace(name), strings.TrimSpace(value)
			switch _, twice := all[name]; {
			case !ok || name == "":
				return "has an entry without NAME="
			case twice:
				return fmt.Sprintf("has %q twice", name)
			}
			if wrong := check(name, value); wrong != "" {
				return wrong
			}
			all[name] = value
		}
		*field(c) = all
		return ""
	})
}

func checkHeader(name, value string) string {
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		return fmt.Sprintf("has the invalid name %q", name)
	case !httpguts.ValidHeaderFieldValue(value):
		return fmt.Sprintf("has an invalid value for %q", name)
	}
	return ""
}

// path is the path of a file; empty: none.
func path(name, usage string, field func(*Config) *string) key {
	return unset(text(name, "", usage, "a path", func(c *Config, s string) string {
		abs, err := filepath.Abs(s)
		if err != nil {
			return "is not a path"
		}
		*field(c) = abs
		return ""
	}))
}

func setOTLPEndpoint(c *Config, s string) string {
	if _, err := otlp.ParseEndpoint(s, ""); err != nil {
		return err.Error()
	}
	c.OTLP.Endpoint = s
	return ""
}

func setOTLPSignals(c *Config, v []string) string {
	c.OTLP.Signals = nil
	for _, s := range v {
		switch {
		case !slices.Contains(OTLPSignals, s):
			return fmt.Sprintf("has the unknown signal %q", s)
		case slices.Contains(c.OTLP.Signals, s):
			return fmt.Sprintf("lists %s twice", s)
		}
		c.OTLP.Signals = append(c.OTLP.Signals, s)
	}
	return ""
}
