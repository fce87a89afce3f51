package linux

import (
	"testing"

	"gotest.tools/v3/assert"
)

func TestFamily(t *testing.T) {
	for name, want := range map[string]string{
		"worker-12": "worker-", "worker": "worker", "http-nio-8080-e": "http-nio-8080-e", "scn1x": "scn1x", "123": "123", "": "",
		"command-1": "command-1", "command-12": "command-12",
	} {
		assert.Check(t, Family(name) == want, "%s: %s", name, Family(name))
	}
}
