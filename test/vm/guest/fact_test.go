package guest

import (
	"strings"
	"testing"

	"github.com/tailcam/tailcam/test/vm/boot"
)

// available notes for the page about kernels that this one has something, or why not.
func available(t *testing.T, name string, why error) {
	t.Helper()
	if why != nil {
		line, _, _ := strings.Cut(why.Error(), "\n")
		t.Log(boot.FormatFact(name, boot.No, line))
		return
	}
	t.Log(boot.FormatFact(name, boot.Yes, ""))
}
