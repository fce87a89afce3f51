package redacted

import (
	"bytes"
	"encoding/json"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/redact"
	"github.com/tailcam/tailcam/snapshot"
)

// FuzzWalk: a document may come from anywhere.
func FuzzWalk(f *testing.F) {
	for _, v := range []any{snapshot.Meta{ID: "a", Notes: []string{"x"}}, snapshot.Names{Tasks: []snapshot.NamedTask{{Comm: "zqcomm", Cmdline: "a b"}}}} {
		data, err := json.Marshal(v)
		assert.NilError(f, err)
		f.Add(data)
	}
	f.Add([]byte(`{"comm":{"comm":["zqcomm",-1.5e9]},"uid":-3,"labels":{"a":{"b":1e99}},"outliers":{"stacks":{"user":["(((","+0x1 (a"]}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var raw any
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber()
		if dec.Decode(&raw) != nil {
			return
		}
		c := copier{p: redact.NewPseudonyms(redact.Kinds), kernel: map[string]bool{}, meta: &snapshot.Meta{}}
		out, err := json.Marshal(c.walk(raw))
		assert.NilError(t, err)
		assert.Check(t, !bytes.Contains(out, []byte(`"comm":"zqcomm"`)), "%s", out)
	})
}
