package daemon

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// unpack reads an archive of bugtool: its files by their names.
func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	info, err := os.Lstat(path)
	assert.NilError(t, err)
	assert.Check(t, is.Equal(info.Mode(), os.FileMode(0o600)))
	f, err := os.Open(path)
	assert.NilError(t, err)
	defer f.Close()
	zip, err := gzip.NewReader(f)
	assert.NilError(t, err)
	files := map[string]string{}
	for archive := tar.NewReader(zip); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		assert.NilError(t, err)
		name, ok := strings.CutPrefix(h.Name, "tailcam-bugtool/")
		assert.Check(t, ok && filepath.IsLocal(name) && h.Typeflag == tar.TypeReg, "%+v", h)
		text, err := io.ReadAll(archive)
		assert.NilError(t, err)
		files[name] = string(text)
	}
}

// collect runs bugtool and unpacks what it wrote.
func collect(t *testing.T, h *home, config string) map[string]string {
	t.Helper()
	out := filepath.Join(h.dir, fmt.Sprintf("report-%d.tar.gz", time.Now().UnixNano()))
	a := tailcam(t, "bugtool", "--config", config, "-O", out)
	assert.Assert(t, a.code == 0 && a.err == "", "%+v", a)
	assert.Check(t, strings.HasPrefix(a.out, out+"\n") && strings.Contains(a.out, "look into it before you send it"), "%s", a.out)
	files := unpack(t, out)
	for name := range files {
		if strings.HasSuffix(name, ".json") {
			assert.Check(t, json.Valid([]byte(files[name])), "%s:\n%s", name, files[name])
		}
		assert.Check(t, name == "MANIFEST" || strings.Contains(files["MANIFEST"], "\n"+name+", "), "%s is not in the manifest", name)
	}
	return files
}

// logging starts a daemon whose log is a file, with a variable of its environment.
func (h *home) logging(t *testing.T, log string, argv ...string) *running {
	t.Helper()
	f, err := os.Create(log)
	assert.NilError(t, err)
	defer f.Close()
	d := &running{home: h, t: t, log: logText{file: log}}
	c, err := startChild(append([]string{"/usr/bin/env"}, argv...), f)
	assert.NilError(t, err)
	d.main = c
	t.Cleanup(func() {
		if !d.ended() {
			d.stop(syscall.SIGTERM)
		}
	})
	d.watches()
	return d
}

// clean holds that no file has a secret.
func clean(t *testing.T, files map[string]string, secrets ...string) {
	t.Helper()
	for name, text := range files {
		for _, s := range secrets {
			assert.Check(t, !strings.Contains(text, s) && !strings.Contains(name, s), "%s has %q", name, s)
		}
	}
}

// TestBugtool: the archive has what a report needs and no secret of configuration, rules,
// flags and environment, with a daemon, with one that hangs, and without one.
func TestBugtool(t *testing.T) {
	needRoot(t)
	notUnderUnit(t, "the configuration and the environment are those of the test")
	const header, action, resource, comment, variable, short = "hdr-s3cret/ab+1=", "secretly",
		"res-s3cret", "cmt-s3cret", "env-s3cret", "zq7"
	secrets := []string{header, action, resource, comment, variable, "Bearer " + short, "secret-anna"}
	uid := newUID()
	h := newHome(t, rulesFile(napRule("naps", uid, "snapshot: false", "actions: [{on: outlier, run: [/bin/true, --to, "+action+"]}]"))+"# "+comment+"\n")
	config := h.configured(t, fmt.Sprintf(`# password: %s
metrics: {listen: "unix:%s/m.sock"}
otlp:
  endpoint: http://127.0.0.1:1/home/secret-anna/x
  headers: ["authorization=Bearer %s", "x-other=Bearer %s"]
  resource: ["api_token=%s", "deployment.environment.name=test"]
`, comment, h.dir, header, short, resource))
	log := filepath.Join(h.dir, "log")
	d := h.logging(t, log, "TAILCAM_OTLP_HEADERS=authorization="+variable, built.tailcam, "run", "--config", config)
	naps(t, uid, 3, 5*time.Millisecond, 1)
	settled(t, d, "naps", 3)
	eventually(t, "the log has the outliers", func() bool { return d.log.has("inj-syscall") })

	files := collect(t, h, config)
	clean(t, files, secrets...)
	for name, text := range files { // the rule names it
		assert.Check(t, strings.HasPrefix(name, "rules/") || !strings.Contains(text, "inj-syscall"), name)
	}
	for name, want := range map[string]string{
		"version.json": "go", "machine.json": `"release"`, "doctor.json": `"check": "kernel"`, "probes.json": "tp_btf:sched_switch",
		"config.txt": "* otlp.headers: (secret)\n", "config/01-tailcam.yaml": "headers: <redacted>", "rules/01-rules.yaml": "/bin/true",
		"environment.txt": "TAILCAM_OTLP_HEADERS = <redacted>\n", "status.json": `"name": "naps"`,
		"metrics.txt": "tailcam_build_info", "process.txt": "State:\t", "programs.json": `"name": "s`,
		"log.txt": `"message":"watching"`,
	} {
		assert.Check(t, is.Contains(files[name], want), name)
	}
	assert.Check(t, is.Contains(files["config.txt"], "/home/<user>/x"))
	assert.Check(t, is.Contains(files["MANIFEST"], "load.txt: "))

	d.pause()
	files = collect(t, h, config)
	d.resume()
	clean(t, files, secrets...)
	assert.Check(t, is.Contains(files["doctor.json"], fmt.Sprintf("does not answer: pid %d", d.pid())))
	assert.Check(t, is.Contains(files["MANIFEST"], "status.json: no daemon answered"))
	assert.Check(t, is.Contains(files["process.txt"], "T (stopped)"))
	assert.Check(t, is.Contains(files["log.txt"], `"message":"watching"`))

	d.stop(syscall.SIGTERM)
	files = collect(t, h, config)
	clean(t, files, secrets...)
	assert.Check(t, is.Contains(files["MANIFEST"], "process.txt: no daemon is running"))
	assert.Check(t, is.Contains(files["doctor.json"], "1 rules loaded and attached"))

	// What is no configuration is not told, wherever the secret stands in it.
	writeFile(t, config, "otlp:\n\theaders: [authorization=Bearer "+header+"]\n"+header+"\n", 0o600)
	files = collect(t, h, config)
	clean(t, files, secrets...)
	assert.Check(t, is.Contains(files["MANIFEST"], "config/01-tailcam.yaml: line 2"))
}

// TestBugtoolOutput: nothing is overwritten, no link is followed, and nothing is left
// where the archive could not be written.
func TestBugtoolOutput(t *testing.T) {
	needRoot(t)
	dir := publicDir(t, "")
	old := writeFile(t, filepath.Join(dir, "old"), "old", 0o644)
	elsewhere := filepath.Join(dir, "elsewhere")
	assert.NilError(t, os.Mkdir(elsewhere, 0o755))
	for _, link := range []string{"link", "dangling", "dir"} {
		target := map[string]string{"link": old, "dangling": filepath.Join(elsewhere, "new"), "dir": elsewhere}[link]
		assert.NilError(t, os.Symlink(target, filepath.Join(dir, link)))
	}
	for out, want := range map[string]string{
		old:                                old + " exists: remove it",
		filepath.Join(dir, "link"):         "exists: remove it",
		filepath.Join(dir, "dangling"):     "exists: remove it",
		filepath.Join(dir, "dir", "x"):     "contains a symbolic link",
		filepath.Join(dir, "none", "x"):    "open directory",
		filepath.Join(dir, "old", "x.tgz"): "open directory",
		"-":                                `invalid -O "-": must be a file`,
		"":                                 "must be a file",
	} {
		a := tailcam(t, "bugtool", "-O", out)
		assert.Check(t, a.code == 1 && a.out == "" && strings.Contains(a.err, want), "%s: %+v", out, a)
	}
	assert.Check(t, is.Equal(readText(t, old), "old"))
	entries, err := os.ReadDir(elsewhere)
	assert.NilError(t, err)
	assert.Check(t, is.Len(entries, 0))
	a := tailcam(t, "bugtool", "-O", "/dev/full")
	assert.Check(t, a.code == 1, "%+v", a)
}
