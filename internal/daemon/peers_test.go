package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/trigger"
)

// TestPeersAuthenticate: a web configuration must have passwords, or ask for certificates.
func TestPeersAuthenticate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.yaml")
	for text, good := range map[string]bool{
		"":                         false,
		"basic_auth_users: {}":     false,
		"basic_auth_users: {a: x}": true,
		"tls_server_config: {cert_file: a, key_file: b}":                                  false,
		"tls_server_config: {cert_file: a, client_auth_type: RequireAnyClientCert}":       false,
		"tls_server_config: {cert_file: a, client_auth_type: RequireAndVerifyClientCert}": true,
		"basic_auth_users: [": false,
	} {
		assert.NilError(t, os.WriteFile(file, []byte(text), 0o600))
		err := authenticates(file)
		assert.Check(t, (err == nil) == good, "%q: %v", text, err)
	}
	assert.Check(t, authenticates(file+"x") != nil)
}

// TestPeerTraceSettles: of a thread, the longest part is explained, the latest first, and not of
// too many threads.
func TestPeerTraceSettles(t *testing.T) {
	p := peerTrace{}
	for tid := range 3 * maxTraceThreads {
		for _, part := range []trigger.Part{{Begin: 20, End: 30}, {Begin: 10, End: uint64(100 + tid)}} {
			part.Task = &trigger.Task{PID: 1, TID: tid}
			p.parts = append(p.parts, part)
		}
	}
	p.settle()
	assert.Equal(t, len(p.parts), maxTraceThreads)
	for i, part := range p.parts {
		assert.Check(t, part.Begin == 10 && part.Task.TID == 3*maxTraceThreads-1-i, "%d: %+v", i, part)
	}
}
