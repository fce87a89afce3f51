package runtimes

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"testing"

	"gotest.tools/v3/assert"
)

// Image is what all containers are made of.
const Image = "tailcam.test/nap:1"

// writeImage writes an image of one program, as docker save does.
func writeImage(t *testing.T, path, program string) {
	t.Helper()
	text, err := os.ReadFile(program)
	assert.NilError(t, err)
	layer := archive(t, file{"nap", text})
	settings, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Entrypoint": []string{"/nap"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	assert.NilError(t, err)
	manifest, err := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{Image}, "Layers": []string{"layer.tar"}}})
	assert.NilError(t, err)
	all := archive(t, file{"config.json", settings}, file{"layer.tar", layer}, file{"manifest.json", manifest})
	assert.NilError(t, os.WriteFile(path, all, 0o600))
}

type file struct {
	name string
	text []byte
}

func archive(t *testing.T, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		assert.NilError(t, w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o755, Size: int64(len(f.text)), Typeflag: tar.TypeReg}))
		_, err := w.Write(f.text)
		assert.NilError(t, err)
	}
	assert.NilError(t, w.Close())
	return b.Bytes()
}
