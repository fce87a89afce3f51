package guest

import (
	"context"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/accounts"
)

// TestAccounts: what a kernel has hooks for is loaded and attached, in every group.
func TestAccounts(t *testing.T) {
	inGuest(t)
	list, err := accounts.Measure(context.Background(), 100*time.Millisecond)
	assert.NilError(t, err)
	for i := range list {
		g := &list[i]
		for j := range g.Values {
			if v := &g.Values[j]; !v.Available {
				t.Logf("%s: %s", v.Name, v.Reason)
			}
		}
		for j := range g.Programs {
			p := &g.Programs[j]
			assert.Check(t, p.Available == (p.Cost != nil), "%s: %s", p.Hook, p.Reason)
		}
	}
}
