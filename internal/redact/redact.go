// Package redact takes secrets, and names of people, out of text that leaves the machine.
//
// It works in two ways: what is known to be a secret, as it stands in the configuration or
// in the environment, is removed wherever it occurs; and what looks like one is removed
// by its form. When in doubt, too much is removed.
package redact

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tailcam/tailcam/internal/text"
)

// Marker stands for what was removed.
const Marker = "<redacted>"

const (
	// least is the length of secrets that are looked for everywhere, in bytes: shorter
	// ones are parts of words.
	least = 4
	// maxSecrets bounds the time that a text takes.
	maxSecrets = 4096
	// maxPasses bounds the passes over a text: removing may join what makes a secret.
	maxPasses = 16
)

// Redactor removes secrets. It is not safe for concurrent use.
type Redactor struct {
	secrets []string // longest first, in all forms that they are printed in
	removed int
}

// Removed returns how often something was removed since the last call.
func (r *Redactor) Removed() int {
	n := r.removed
	r.removed = 0
	return n
}

// common are values of settings that are no secrets, and that would make text unreadable
// if they were removed everywhere.
var common = []string{"true", "false", "null", "none", "auto", "info", "root", "tailcam", "localhost"}

// ignored reports whether a value is not looked for.
func ignored(value string) bool {
	return len(value) < least || strings.Contains(Marker, value) || slices.Contains(common, strings.ToLower(value))
}

// Add makes a value a secret, in all forms in which it may be printed. Values of fewer
// than 4 bytes, and a few common words, are ignored.
func (r *Redactor) Add(value string) {
	forms := []string{
		value, strings.ToValidUTF8(value, "\uFFFD"), text.Clean(value), url.QueryEscape(value), url.PathEscape(value),
	}
	if quoted := strconv.Quote(value); len(quoted) > 2 {
		forms = append(forms, quoted[1:len(quoted)-1])
	}
	for _, marshal := range []func(any) ([]byte, error){json.Marshal, text.Marshal} {
		if quoted, err := marshal(value); err == nil && len(quoted) > 2 {
			forms = append(forms, string(quoted[1:len(quoted)-1]))
		}
	}
	for _, form := range forms {
		if ignored(form) || slices.Contains(r.secrets, form) || len(r.secrets) >= maxSecrets {
			continue
		}
		r.secrets = append(r.secrets, form)
	}
	r.sort()
}

// schemes are words before a secret that are none.
var schemes = []string{"bearer", "basic", "digest", "negotiate", "token", "apikey"}

// AddCredential makes the value of a header or a similar setting a secret, its words, and
// what they decode to.
func (r *Redactor) AddCredential(value string) {
	r.Add(value)
	for word := range strings.FieldsSeq(value) {
		if slices.Contains(schemes, strings.ToLower(word)) {
			continue
		}
		r.Add(word)
		plain, err := base64.StdEncoding.DecodeString(word)
		if name, password, ok := strings.Cut(string(plain), ":"); err == nil && ok {
			r.Add(name)
			r.Add(password)
		}
	}
}

// AddSetting makes secrets of the value of a setting that has them: entries NAME=VALUE
// separated by commas, or a single value.
func (r *Redactor) AddSetting(value string) {
	r.AddCredential(value)
	for entry := range strings.SplitSeq(value, ",") {
		if _, v, ok := strings.Cut(entry, "="); ok {
			r.AddCredential(strings.TrimSpace(v))
		}
	}
}

// words are in the names of settings that hold secrets.
const words = `password|passwd|passphrase|pwd|secret|token|credential|cookie|auth|bearer|header|` +
	`(?:api|access|private)[_.-]?key`

var sensitive = regexp.MustCompile(`(?i)` + words)

// Sensitive reports whether a setting of this name may hold a secret.
func Sensitive(name string) bool { return sensitive.MatchString(name) }

// rule replaces what matches, by form.
type rule struct {
	match *regexp.Regexp
	with  string
}

// locations are the forms that are removed from all text.
var locations = []rule{
	// Names and passwords in URLs, up to the last @ of the word.
	{regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s"'<>]*@`), "${1}" + Marker + "@"},
	// Home directories have the names of users.
	{regexp.MustCompile(`(/(?:home|Users)/)[^/\s"':,;()<>]+`), "${1}<user>"},
}

// shapes are the forms that are removed from text in which people or programs may have
// written anything.
var shapes = []rule{
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*-----.*?(?:-----END [A-Z0-9 ]*-----|$)`), Marker},
	{regexp.MustCompile(`(?i)\b(bearer|basic|digest|negotiate)\s+[^\s"',;]+`), "${1} " + Marker},
	// JSON web tokens, keys of clouds and services.
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?`), Marker},
	{regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`), Marker},
	{regexp.MustCompile(`\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-|sk-|hf_|npm_|pypi-)[A-Za-z0-9_-]{8,}`), Marker},
	// Hashes of passwords.
	{regexp.MustCompile(`\$(?:2[abxy]|5|6|y|argon2[a-z]*)\$[A-Za-z0-9./$=,+-]+`), Marker},
	// A setting: all that follows on its line.
	{regexp.MustCompile(`(?i)([A-Za-z0-9_.-]*(?:` + words + `)[A-Za-z0-9_.-]*["']?\s*[=:])[^\r\n]+`), "${1} " + Marker},
	// Who does what, and what actions are told and print, in a log.
	{regexp.MustCompile(`(?i)\b(cmdline|comm|command|user|username|login|run|output|changes)=(?:"(?:[^"\\\n]|\\.)*"|\S+)`), "${1}=<left out>"},
}

// Known removes what is known to be a secret.
func (r *Redactor) Known(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	for range maxPasses {
		found := 0
		for _, secret := range r.secrets {
			if n := strings.Count(s, secret); n > 0 {
				s, found = strings.ReplaceAll(s, secret, Marker), found+n
			}
		}
		if found == 0 {
			return s
		}
		r.removed += found
	}
	return Marker // it cannot be cleaned
}

// Plain removes known secrets, and names of users in paths and URLs, from text that the
// kernel or tailcam has written.
func (r *Redactor) Plain(s string) string { return r.Known(r.apply(locations, r.Known(s))) }

// Text also removes what looks like a secret.
func (r *Redactor) Text(s string) string {
	return r.Known(r.apply(shapes, r.apply(locations, r.Known(s))))
}

func (r *Redactor) apply(list []rule, s string) string {
	for _, rule := range list {
		if n := len(rule.match.FindAllStringIndex(s, -1)); n > 0 {
			s = rule.match.ReplaceAllString(s, rule.with)
			r.removed += n
		}
	}
	return s
}

// Join adds what another Redactor knows.
func (r *Redactor) Join(other *Redactor) {
	for _, secret := range other.secrets {
		if !slices.Contains(r.secrets, secret) {
			r.secrets = append(r.secrets, secret)
		}
	}
	r.sort()
}

func (r *Redactor) sort() {
	slices.SortStableFunc(r.secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
}
