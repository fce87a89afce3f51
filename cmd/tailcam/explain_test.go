package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	ct "github.com/tailcam/tailcam/internal/catalog/catalogtest"
)

// What it says is tested in package explain, how it looks in internal/timeline.
func TestExplain(t *testing.T) {
	dir, ids := ct.Make(t, ct.One{Comm: "<\x1b[2J>"}, ct.One{ByHand: true})
	byPath := filepath.Join(dir, ids[0])
	status, text, stderr := invoke(t, "explain", byPath)
	if status != exitOK || stderr != "" || !strings.Contains(text, "rule wakeup\n") || !strings.Contains(text, "where the time went\n") || !strings.Contains(text, "100.0%") {
		t.Errorf("status %d, %q\n%s", status, stderr, text)
	}
	_, byID, _ := invoke(t, "explain", "--dir", dir, ids[0][:15]+".123456789Z-wakeup")
	assert.Check(t, byID == text, "by its id:\n%s", byID)
	_, long, _ := invoke(t, "explain", "--path", byPath)
	assert.Check(t, strings.HasPrefix(long, text) && strings.Contains(long, "The critical path"),
		"--path:\n%s", long)
	status, stdout, _ := invoke(t, "explain", "-o", "json", byPath)
	n := isJSONLines(t, stdout)
	assert.Check(t, status == exitOK && n == 1 && strings.Contains(stdout, `"parts":[`),
		"json: status %d, %s", status, stdout)
	picture := filepath.Join(t.TempDir(), "slow.svg")
	status, stdout, stderr = invoke(t, "explain", byPath, "--format", "svg", "-O", picture)
	data, err := os.ReadFile(picture)
	assert.Check(t, status == exitOK && stdout == "" && stderr == "" && err == nil &&
		strings.HasPrefix(string(data), "<svg "), "svg: status %d, %q, %q, %v", status, stdout, stderr, err)
	if status, _, stderr := invoke(t, "explain", byPath, "--format", "svg", "-O", picture, "--force"); status != exitOK {
		t.Errorf("--force: status %d, %q", status, stderr)
	}
	for d := xml.NewDecoder(strings.NewReader(string(data))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	status, stdout, stderr = invoke(t, "explain", byPath, "--format", "html")
	assert.Check(t, status == exitOK && stderr == "" && strings.HasPrefix(stdout, "<!doctype html>") && strings.HasSuffix(stdout, "</html>\n") &&
		strings.Contains(stdout, ids[1]), "html, with the snapshot after it: status %d, %q\n%s", status, stderr, stdout)
	if _, stdout, _ := invoke(t, "explain", filepath.Join(dir, ids[1])); !strings.HasPrefix(stdout, "no outlier: the snapshot was taken manually\n") {
		t.Errorf("by hand: %q", stdout)
	}
	for args, want := range map[string]string{
		"a b":                       `"tailcam explain" takes at most 1 argument, got 2: see "tailcam explain --help"`,
		byPath + " --outlier 2":     "invalid --outlier 2: the snapshot has 1 outlier",
		byPath + " --format png":    "invalid --format png: must be one of text, svg, html, json, yaml",
		byPath + " -O /no/such/dir": "write explanation: open /no/such/dir: no such file or directory",
		byPath + " -O " + picture:   picture + " already exists: use --force to overwrite it",
		"/no/such/dir":              "directory /no/such/dir does not exist: set the snapshot directory with --snapshots-dir",
		"1999 --dir " + dir:         `no such snapshot: "1999" in ` + dir + `: see "tailcam snapshots list"`,
	} {
		status, stdout, stderr := invoke(t, append([]string{"explain"}, strings.Fields(args)...)...)
		assert.Check(t, status == statusOf(want) && stdout == "" && stderr == "tailcam: "+want+"\n",
			"explain %s: status %d, %q, %q", args, status, stdout, stderr)
	}
	status, _, stderr = invoke(t, "explain", byPath, "--format", "svg", "-O", "/dev/full")
	assert.Check(t, status == exitError && strings.HasSuffix(stderr, "no space left on device\n"),
		"full: status %d, %q", status, stderr)
}
