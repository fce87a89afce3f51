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
)

func TestControl(t *testing.T) {
	backend := newFake()
	c, _ := serve(t, backend)
	ctx := context.Background()
	me := fmt.Sprintf("uid %d", os.Getuid())
	info, err := c.SetThreshold(ctx, &ThresholdRequest{Rule: "wakeup", When: map[string][]string{"pid": {"1", "2"}}, Threshold: "2ms", For: "10m"})
	want := &ThresholdInfo{ID: 3, Rule: "wakeup", When: map[string][]string{"pid": {"1", "2"}}, ThresholdNS: 2e6, LeftNS: 5, By: me}
	if diff := cmp.Diff(want, info); err != nil || diff != "" {
		t.Errorf("set: %v\n%s", err, diff)
	}
	if list, err := c.Thresholds(ctx); err != nil || list == nil || len(list) != 0 {
		t.Errorf("list: %v, %v; want an empty list", list, err)
	}
	for _, do := range []error{
		c.Pause(ctx, &PauseRequest{Rule: "disk", For: "1h"}),
		c.ResetRatchet(ctx, "disk"),
		second(c.ClearThresholds(ctx, "disk", 7)),
		second(c.ClearThresholds(ctx, "disk", 0)),
		second(c.ClearThresholds(ctx, "", 0)),
	} {
		if do != nil {
			t.Error(do)
		}
	}
	if err := c.Resume(ctx, "disk"); err == nil || err.Error() != "rule disk is not paused" {
		t.Errorf("resume: %v", err)
	}
	for _, want := range []string{
		"set wakeup map[pid:[1 2]] 2ms  10m by " + me, "pause disk 1h by " + me, "ratchet disk",
		`clear "disk" 7`, `clear "disk" 0`, `clear "" 0`, "resume disk",
	} {
		if got := <-backend.took; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	backend.fail = errors.New("threshold is zero")
	if _, err := c.SetThreshold(ctx, &ThresholdRequest{Rule: "wakeup"}); err == nil || err.Error() != "threshold is zero" {
		t.Errorf("refused: %v", err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var f failure
		if err := decode(resp, &f); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if resp.StatusCode != k.status || f.Error != k.want {
			t.Errorf("%s %s %.60s: %d %q, want %d %q", k.method, k.path, k.body, resp.StatusCode, f.Error, k.status, k.want)
		}
	}
	if n := len(backend.took); n != 0 {
		t.Errorf("%d requests reached the daemon", n)
	}
}
