package ask

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/activities/breakdown"
	"github.com/tailcam/tailcam/internal/api"
)

// TestSharedRows: by name one row of each kind; by what a process has, those of each; none by
// what activities alone have, or filtered by it.
func TestSharedRows(t *testing.T) {
	info := &api.ActivitiesInfo{Shared: []api.SharedInfo{
		{PID: 7, Comm: "shop", MachineNS: 3, Values: breakdown.Values{"writeback_bytes": 4096}},
		{PID: 8, Comm: "shop", MachineNS: 5, Late: 2},
		{PID: 9, Comm: "mail", Late: 1},
	}}
	rows := Shared(info, "name", nil)
	assert.Equal(t, len(rows), 2)
	assert.Check(t, rows[0].Key == KindMachine && rows[0].Kind == KindMachine && rows[0].Values["machine_ns"] == 8, "%+v", rows[0])
	assert.DeepEqual(t, rows[1].Values, breakdown.Values{"writeback_bytes": 4096, "late": 3})
	rows = Shared(info, "comm", Filter{"pid": {"7", "9"}})
	assert.Equal(t, len(rows), 3)
	assert.Check(t, rows[0].Key == "mail" && rows[0].Values["late"] == 1, "%+v", rows[0])
	assert.Check(t, rows[1].Key == "shop" && rows[1].Kind == KindShared && rows[2].Kind == KindMachine && rows[2].Values["machine_ns"] == 3, "%+v", rows)
	assert.DeepEqual(t, info.Shared[0].Values, map[string]uint64{"writeback_bytes": 4096})
	assert.Equal(t, len(Shared(info, "text", nil)), 0)
	assert.Equal(t, len(Shared(info, "name", Filter{"name": {"*"}})), 0)
}
