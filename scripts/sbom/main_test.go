package main

import (
	"debug/buildinfo"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDescribe: the binary, the standard library and each module are there, a
// replaced module as what replaces it.
func TestDescribe(t *testing.T) {
	info := &buildinfo.BuildInfo{
		GoVersion: "go1.26.8",
		Path:      "example.com/a/cmd/b",
		Main:      debug.Module{Path: "example.com/a", Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: "example.com/c", Version: "v1.0.0+incompatible", Sum: "h1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="},
			{Path: "example.com/d", Version: "v0.1.0", Replace: &debug.Module{Path: "example.com/e", Version: "v0.2.0"}},
		},
	}
	doc := describe(info, [32]byte{1, 2, 3}, "v1.2.3")
	if want := "urn:uuid:01020300-0000-8000-8000-000000000000"; doc.Serial != want {
		t.Errorf("serial number %s, want %s", doc.Serial, want)
	}
	if c := doc.Metadata.Component; c.Name != "b" || c.Type != "application" || c.PURL != "pkg:golang/example.com/a@v1.2.3" {
		t.Errorf("the binary is %+v", c)
	}
	type row struct{ PURL, Version, Hash string }
	var got []row
	for _, c := range doc.Components {
		r := row{PURL: c.PURL, Version: c.Version}
		for _, h := range c.Hashes {
			r.Hash = h.Content
		}
		got = append(got, r)
	}
	want := []row{
		{"pkg:golang/std@1.26.8", "1.26.8", ""},
		{"pkg:golang/example.com/c@v1.0.0%2Bincompatible", "v1.0.0+incompatible", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"},
		{"pkg:golang/example.com/e@v0.2.0", "v0.2.0", ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := len(doc.Dependencies[0].DependsOn); n != len(want) {
		t.Errorf("the binary depends on %d components, want %d", n, len(want))
	}
}
