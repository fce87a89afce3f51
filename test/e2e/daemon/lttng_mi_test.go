package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
)

// miTable is one table of lttng-analyses' machine interface.
type miTable struct {
	Class json.RawMessage `json:"class"` // a name, or an object with a title
	Range struct {
		Begin miCell `json:"begin"`
		End   miCell `json:"end"`
	} `json:"time-range"`
	Data [][]*miCell `json:"data"`
}

type miCell struct {
	Class      string          `json:"class"`
	Value      json.RawMessage `json:"value"`
	ID         *int            `json:"id"`
	Name       string          `json:"name"`
	TID        int             `json:"tid"`
	Nr         int             `json:"nr"`
	Hard       bool            `json:"hard"`
	Path       string          `json:"path"`
	FD         int             `json:"fd"`
	Begin, End *miCell
}

func (c *miCell) number(t *testing.T) uint64 {
	t.Helper()
	n, err := strconv.ParseInt(string(c.Value), 10, 64)
	assert.NilError(t, err, "lttng-analyses: %s is not a number", c.Value)
	return uint64(n)
}

func (c *miCell) ratio(t *testing.T) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(string(c.Value), 64)
	assert.NilError(t, err, "lttng-analyses: %s is not a number", c.Value)
	return n
}

func (c *miCell) text(t *testing.T) (s string) {
	t.Helper()
	assert.NilError(t, json.Unmarshal(c.Value, &s), "lttng-analyses: %s is not a text", c.Value)
	return s
}

// analyse runs reports over a trace, two at a time.
func analyse(t *testing.T, dir string, reports ...string) map[string][]miTable {
	t.Helper()
	all, errs := make([][]miTable, len(reports)), make([]error, len(reports))
	places := make(chan struct{}, 2)
	var group sync.WaitGroup
	for i, report := range reports {
		group.Go(func() {
			places <- struct{}{}
			all[i], errs[i] = analyseOne(t.Context(), report, dir)
			<-places
		})
	}
	group.Wait()
	assert.NilError(t, errors.Join(errs...))
	out := map[string][]miTable{}
	for i, report := range reports {
		out[report] = all[i]
	}
	return out
}

func analyseOne(ctx context.Context, report, dir string) ([]miTable, error) {
	args := []string{"--skip-validation"}
	if report == "cputop" || report == "iousagetop" {
		args = append(args, "--limit", "1000000")
	}
	cmd := exec.CommandContext(ctx, "lttng-"+report+"-mi", append(args, dir)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("lttng-%s %s: %w\n%s%s", report, dir, err, stdout.String(), stderr.String())
	}
	var out struct {
		Error   string    `json:"error-message"`
		Results []miTable `json:"results"`
	}
	if err := json.Unmarshal(stdout.Bytes(), &out); err != nil || out.Error != "" {
		return nil, fmt.Errorf("lttng-%s %s: %w %s\n%.2000s", report, dir, err, out.Error, stdout.String())
	}
	return out.Results, nil
}

// rowsOf returns the rows of the table of a class, or with that title.
func rowsOf(tables []miTable, class string) [][]*miCell {
	for i := range tables {
		if bytes.Contains(tables[i].Class, []byte(strconv.Quote(class))) {
			return tables[i].Data
		}
	}
	return nil
}
