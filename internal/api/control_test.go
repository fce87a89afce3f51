package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestControl(t *testing.T) {
	backend := newFake()
	c, _ := serve(t, backend)
	ctx := context.Background()
	me := fmt.Sprintf("uid %d", os.Getuid())
	info, err := c.SetThreshold(ctx, &ThresholdRequest{Rule: "wakeup", When: map[string][]string{"pid": {"1", "2"}}, Threshold: "2ms", For: "10m"})
	want := &ThresholdInfo{ID: 3, Rule: "wakeup", When: map[string][]string{"pid": {"1", "2"}}, ThresholdNS: 2e6, LeftNS: 5, By: me}
	diff := cmp.Diff(want, info)
	assert.Check(t, err == nil && diff == "", "set: %v\n%s", err, diff)
	list, err := c.Thresholds(ctx)
	assert.Check(t, err == nil && list != nil && len(list) == 0, "list: %v, %v; want an empty list", list, err)
	for _, do := range []error{
		c.Pause(ctx, &PauseRequest{Rule: "disk", For: "1h"}),
		c.ResetRatchet(ctx, "disk"),
		second(c.ClearThresholds(ctx, "disk", 7)),
		second(c.ClearThresholds(ctx, "disk", 0)),
		second(c.ClearThresholds(ctx, "", 0)),
	} {
		assert.Check(t, do)
	}
	assert.Check(t, is.Error(c.Resume(ctx, "disk"), "rule disk is not paused"), "resume")
	for _, want := range []string{
		"set wakeup map[pid:[1 2]] 2ms  10m by " + me, "pause disk 1h by " + me, "ratchet disk",
		`clear "disk" 7`, `clear "disk" 0`, `clear "" 0`, "resume disk",
	} {
		assert.Check(t, is.Equal(<-backend.took, want))
	}
	backend.fail = errors.New("threshold is zero")
	_, err = c.SetThreshold(ctx, &ThresholdRequest{Rule: "wakeup"})
	assert.Check(t, is.Error(err, "threshold is zero"), "refused")
}

func second[T any](_ T, err error) error { return err }

// What is asked wrongly changes nothing, and the answer says why.
func TestControlErrors(t *testing.T) {
	backend := newFake()
	c, _ := serve(t, backend)
	const noRule = `unknown rule "nosuch": the daemon has wakeup, disk`
	for _, k := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/v1/thresholds", `{"rule": "nosuch", "threshold": "1ms"}`, 404, noRule},
		{"POST", "/v1/thresholds", `{"threshold": "1ms"}`, 400, "missing rule"},
		{"POST", "/v1/thresholds", `{"rule": "wakeup", "treshold": "1ms"}`, 400, `read request: json: unknown field "treshold"`},
		{"POST", "/v1/thresholds", `{"rule": "wakeup"} x`, 400, "read request: data after the object"},
		{"POST", "/v1/thresholds", ``, 400, "read request: EOF"},
		{"DELETE", "/v1/thresholds", ``, 400, "specify one of rule, all"},
		{"DELETE", "/v1/thresholds?rule=wakeup&all=1", ``, 400, "specify one of rule, all"},
		{"DELETE", "/v1/thresholds?rule=wakeup&id=x", ``, 400, `invalid id "x": see "tailcam threshold list"`},
		{"DELETE", "/v1/thresholds?rule=wakeup&id=-1", ``, 400, `invalid id "-1": see "tailcam threshold list"`},
		{"DELETE", "/v1/thresholds?rule=nosuch", ``, 404, noRule},
		{"POST", "/v1/pause", `{"rule": "nosuch"}`, 404, noRule},
		{"POST", "/v1/pause", `[]`, 400, "read request: json: cannot unmarshal array into Go value of type api.PauseRequest"},
		{"POST", "/v1/resume", `{"rule": "nosuch"}`, 404, noRule},
		{"POST", "/v1/pause", `{"rule": "` + strings.Repeat("x", maxBody) + `"}`, 413, "read request: http: request body too large"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), k.method, "http://tailcam"+k.path, strings.NewReader(k.body))
		assert.NilError(t, err)
		resp, err := c.http.Do(req)
		assert.NilError(t, err)
		var f failure
		err = decode(resp, &f)
		assert.Assert(t, err == nil || errors.Is(err, io.EOF), "%v", err)
		assert.Check(t, resp.StatusCode == k.status && f.Error == k.want,
			"%s %s %.60s: %d %q, want %d %q", k.method, k.path, k.body, resp.StatusCode, f.Error, k.status, k.want)
	}
	assert.Check(t, len(backend.took) == 0, "%d requests reached the daemon", len(backend.took))
}
