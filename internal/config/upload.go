package config

import (
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"github.com/tailcam/tailcam/internal/outbox"
	"github.com/tailcam/tailcam/internal/redacted"
)

// uploadKeys are the keys of upload.
func uploadKeys() []key {
	hidden := func(k key) key { // what is refused may have a password
		k.secret = true
		return k
	}
	return []key{
		hidden(unset(text("upload.target", "", "`URL` that snapshots are sent to: s3://, https://, http://, sftp:// or file://; empty: none are sent",
			"a URL, such as s3://BUCKET/PREFIX, https://HOST/PATH, sftp://USER@HOST/PATH or file:///PATH", setUploadTarget))),
		path("upload.credentials", "`file` with what the target wants: keys of S3, a value for Authorization, or a private key of SSH",
			func(c *Config) *string { return &c.Upload.Credentials }),
		text("upload.known_hosts", "/etc/ssh/ssh_known_hosts", "`file` with keys of SFTP servers", "a path", setPath(
			func(c *Config) *string { return &c.Upload.KnownHosts })),
		path("upload.ca", "`file` with the authorities that may sign the target's certificate",
			func(c *Config) *string { return &c.Upload.CA }),
		hidden(text("upload.s3.endpoint", "https://s3.amazonaws.com", "`URL` of the S3-compatible store", "a URL without a path", setUploadEndpoint)),
		unset(text("upload.s3.region", "", "`region` of the bucket; empty: asked for", "the name of a region",
			func(c *Config, s string) string { c.Upload.S3.Region = s; return "" })),
		text("upload.spool", "/var/lib/tailcam/spool", "`directory` of what waits to be sent", "a path", setPath(
			func(c *Config) *string { return &c.Upload.Spool })),
		byteCount("upload.quota", "1GiB", "maximum `size` of what waits", 1<<20, 1<<50,
			func(c *Config) *int64 { return &c.Upload.Quota }),
		duration("upload.age", "168h", "maximum `duration` for which a snapshot waits", time.Minute, 10*365*24*time.Hour,
			func(c *Config) *time.Duration { return &c.Upload.Age }),
		orOff(byteCount("upload.bandwidth", "off", "maximum `size` of what is sent each second; off: no limit", 16<<10, 1<<40,
			func(c *Config) *int64 { return &c.Upload.Bandwidth })),
		texts("upload.redact", redactOff, "`kinds` of names that are sent as pseudonyms: usual, all, or some of them; off: none",
			redactOff+", usual, all, or some of "+redacted.KindNames(), setRedact),
	}
}

func setUploadTarget(c *Config, s string) string {
	if _, err := outbox.Parse(s); err != nil {
		return err.Error()
	}
	c.Upload.Target = s
	return ""
}

const redactOff = "off"

func setRedact(c *Config, v []string) string {
	if slices.Equal(v, []string{redactOff}) {
		c.Upload.Redact = nil
		return ""
	}
	kinds, err := redacted.ParseKinds(v)
	switch {
	case len(v) == 0:
		return "is an empty list"
	case err != nil:
		return "is no kind of names, or one of several that must stand alone"
	}
	c.Upload.Redact = kinds
	return ""
}

func setUploadEndpoint(c *Config, s string) string {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http":
		return "does not begin with https:// or http://"
	case u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/":
		return "has more, or less, than a host and a port"
	}
	c.Upload.S3.Endpoint = s
	return ""
}

// setPath is for a path that is not empty.
func setPath(field func(*Config) *string) func(*Config, string) string {
	return func(c *Config, s string) string {
		abs, err := filepath.Abs(s)
		if err != nil || s == "" {
			return "is not a path"
		}
		*field(c) = abs
		return ""
	}
}
