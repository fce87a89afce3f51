// Command sbom prints the software bill of materials of a Go binary as CycloneDX
// 1.6 JSON: the modules that were linked into it, with their checksums, as the
// Go toolchain recorded them in the binary. The output has no time and no random
// part, so the same binary always gives the same document.
//
//	go run ./scripts/sbom BINARY VERSION
package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

const spdxLicense = "Apache-2.0"

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type license struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type component struct {
	Ref      string    `json:"bom-ref"`
	Type     string    `json:"type"`
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	Hashes   []hash    `json:"hashes,omitempty"`
	Licenses []license `json:"licenses,omitempty"`
	PURL     string    `json:"purl"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

type bom struct {
	Format   string `json:"bomFormat"`
	Spec     string `json:"specVersion"`
	Serial   string `json:"serialNumber"`
	Version  int    `json:"version"`
	Metadata struct {
		Component component `json:"component"`
	} `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 3 {
		return errors.New("usage: sbom BINARY VERSION")
	}
	data, err := os.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	info, err := buildinfo.Read(bytes.NewReader(data))
	if err != nil {
		return err
	}
	doc := describe(info, sha256.Sum256(data), os.Args[2])
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(doc); err != nil {
		return err
	}
	_, err = os.Stdout.Write(out.Bytes())
	return err
}

// describe is the document of a binary with that build information and checksum.
func describe(info *buildinfo.BuildInfo, sum [sha256.Size]byte, version string) *bom {
	doc := &bom{Format: "CycloneDX", Spec: "1.6", Version: 1, Serial: serial(sum)}
	main := module(&debug.Module{Path: info.Main.Path, Version: version})
	main.Type, main.Name = "application", filepath.Base(info.Path)
	main.Hashes = []hash{{"SHA-256", hex.EncodeToString(sum[:])}}
	main.Licenses = make([]license, 1)
	main.Licenses[0].License.ID = spdxLicense
	doc.Metadata.Component = main

	std := module(&debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")})
	doc.Components = append(doc.Components, std)
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		doc.Components = append(doc.Components, module(dep))
	}
	all := dependency{Ref: main.Ref}
	for _, c := range doc.Components {
		all.DependsOn = append(all.DependsOn, c.Ref)
	}
	doc.Dependencies = []dependency{all}
	return doc
}

// module is a Go module as a component. The module checksum ("h1:") is a SHA-256
// over the names and checksums of its files.
func module(m *debug.Module) component {
	purl := "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B")
	c := component{Ref: purl, Type: "library", Name: m.Path, Version: m.Version, PURL: purl}
	if sum, ok := strings.CutPrefix(m.Sum, "h1:"); ok {
		if raw, err := base64.StdEncoding.DecodeString(sum); err == nil {
			c.Hashes = []hash{{"SHA-256", hex.EncodeToString(raw)}}
		}
	}
	return c
}

// serial is a UUID (version 8) made from the checksum of the binary.
func serial(sum [sha256.Size]byte) string {
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
