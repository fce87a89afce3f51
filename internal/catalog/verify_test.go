package catalog_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/catalog"
	ct "github.com/tailcam/tailcam/internal/catalog/catalogtest"
	"github.com/tailcam/tailcam/snapshot"
)

func hog() *explain.Who { return ct.Task("rt-hog", 99, 49) }

func explained() ct.One {
	return ct.One{Parts: []explain.Part{ct.Part(explain.Preempted, hog(), 19), ct.Part(explain.IRQ, &explain.Who{Kind: explain.KindIRQ, Name: "eth0"}, 0.5)}}
}

func verifyAll(t *testing.T, dir string) []catalog.Check {
	t.Helper()
	ids, err := snapshot.IDs(dir)
	assert.NilError(t, err)
	checks, err := catalog.Verify(context.Background(), dir, ids, nil)
	assert.Assert(t, err == nil && len(checks) == len(ids), "%d of %d: %v", len(checks), len(ids), err)
	return checks
}

func TestVerifyWhole(t *testing.T) {
	dir, ids := ct.Make(t, explained(), ct.One{ByHand: true}, ct.One{}, ct.One{Lost: 2}, ct.One{Lost: 2, Missing: 5})
	for i, c := range verifyAll(t, dir) {
		assert.Check(t, c.OK && c.Events == 3 && c.Bytes != 0 && c.ID == ids[i] && c.Explained == (i == 0),
			"%+v", c)
	}
}

// Each way in which a snapshot can be damaged is told by its file.
func TestVerifyBroken(t *testing.T) {
	in := func(name string) func(dir string) string {
		return func(dir string) string { return filepath.Join(dir, name) }
	}
	meta, report := in(snapshot.MetaFile), in(snapshot.ExplainJSONFile)
	stream := in("trace/kernel/kernel_0")
	write := func(path, text string) error { return os.WriteFile(path, []byte(text), 0o600) }
	edit := func(path string, change func(m map[string]any)) error {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var m map[string]any
		if err := json.Unmarshal(data, &m); err != nil {
			return err
		}
		change(m)
		if data, err = json.Marshal(m); err != nil {
			return err
		}
		return os.WriteFile(path, data, 0o600)
	}
	first := func(m map[string]any) map[string]any { return m["outliers"].([]any)[0].(map[string]any) }
	for name, c := range map[string]struct {
		harm func(dir string) error
		file string
		want string
	}{
		"no meta":        {func(d string) error { return os.Remove(meta(d)) }, "snapshot.json", "no such file or directory"},
		"torn meta":      {func(d string) error { return os.Truncate(meta(d), 100) }, "snapshot.json", "unexpected end of JSON input"},
		"empty meta":     {func(d string) error { return write(meta(d), "{}") }, "snapshot.json", "version or id is missing"},
		"newer meta":     {func(d string) error { return write(meta(d), `{"version":99,"id":"x"}`) }, "snapshot.json", "is newer than 1"},
		"pipe":           {func(d string) error { return errors.Join(os.Remove(meta(d)), unix.Mkfifo(meta(d), 0o600)) }, "snapshot.json", "is not a regular file"},
		"link":           {func(d string) error { return errors.Join(os.Remove(meta(d)), os.Symlink("/etc/passwd", meta(d))) }, "snapshot.json", "too many levels of symbolic links"},
		"another's meta": {func(d string) error { return edit(meta(d), func(m map[string]any) { m["id"] = "x\x1b[31m" }) }, "snapshot.json", `has the id "x\x1b[31m"`},
		"another time": {func(d string) error {
			return edit(meta(d), func(m map[string]any) { m["time"] = "2020-01-01T00:00:00Z" })
		}, "snapshot.json", "differs from the directory name"},
		"wrong sum": {func(d string) error { return edit(meta(d), func(m map[string]any) { m["records"] = 4 }) }, "snapshot.json", "records of all CPUs add up to 3, not 4"},
		"no rule":   {func(d string) error { return edit(meta(d), func(m map[string]any) { first(m)["rule"] = "" }) }, "snapshot.json", "outlier 0 has no rule, track or cause"},
		"backwards": {func(d string) error {
			return edit(meta(d), func(m map[string]any) { first(m)["end_mono_ns"] = 1 })
		}, "snapshot.json", "outlier 0 ends before it begins"},
		"no trace": {func(d string) error { return os.RemoveAll(filepath.Join(d, "trace")) }, "trace", "is missing"},
		"trace elsewhere": {func(d string) error {
			return errors.Join(os.Rename(filepath.Join(d, "trace"), d+".else"), os.Symlink(d+".else", filepath.Join(d, "trace")))
		}, "trace", "is missing"},
		"no metadata": {func(d string) error { return os.Remove(filepath.Join(d, "trace/kernel/metadata")) }, "trace", "no such file or directory"},
		"torn stream": {func(d string) error { return os.Truncate(stream(d), 70) }, "trace", "damaged trace"},
		"lost stream": {func(d string) error { return os.Remove(stream(d)) }, "trace", "has 0 entries and 0 exits of outliers, snapshot.json 1 outliers"},
		"other count": {func(d string) error {
			return edit(meta(d), func(m map[string]any) {
				m["records"] = 4
				m["coverage"].([]any)[0].(map[string]any)["records"] = 4
			})
		}, "trace", "has 3 events of CPU 0, snapshot.json says 4"},
		"torn explanation": {func(d string) error { return os.Truncate(report(d), 50) }, "explain.json", "unexpected end of JSON input"},
		"parts": {func(d string) error {
			return edit(report(d), func(m map[string]any) { first(m)["parts"].([]any)[0].(map[string]any)["ns"] = 18_000_000 })
		}, "explain.json", "its parts add up to 19000000 ns, its delay is 20000000 ns"},
		"too many parts": {func(d string) error {
			return edit(report(d), func(m map[string]any) { first(m)["parts"].([]any)[0].(map[string]any)["ns"] = 9.2e18 })
		}, "explain.json", "its parts are more than its delay"},
		"other delay": {func(d string) error {
			return edit(meta(d), func(m map[string]any) { first(m)["delay_ns"] = 1 })
		}, "explain.json", `outlier 0 is of rule "wakeup" and 20000000 ns, in snapshot.json of "wakeup" and 1 ns`},
		"gap": {func(d string) error {
			return edit(report(d), func(m map[string]any) {
				first(m)["path"].([]any)[1].(map[string]any)["from_mono_ns"] = 1_999_000_001
			})
		}, "explain.json", "step 1 of its path leaves a gap, or overlaps"},
		"more explanation": {func(d string) error {
			return edit(report(d), func(m map[string]any) { m["outliers"] = []any{first(m), first(m)} })
		}, "explain.json", "has 2 outliers, snapshot.json 1"},
		"roots": {func(d string) error {
			return edit(report(d), func(m map[string]any) { first(m)["roots"].([]any)[2].(map[string]any)["ns"] = 1 })
		}, "explain.json", "its roots add up to"},
		"names":     {func(d string) error { return write(filepath.Join(d, "tasks.json"), "[") }, "tasks.json", "unexpected end of JSON input"},
		"no text":   {func(d string) error { return os.Remove(filepath.Join(d, "explain.txt")) }, "explain.txt", "no such file or directory"},
		"no stacks": {func(d string) error { return os.Remove(filepath.Join(d, "stacks.folded")) }, "stacks.folded", "no such file or directory"},
	} {
		dir, ids := ct.Make(t, explained(), explained())
		assert.NilError(t, c.harm(filepath.Join(dir, ids[0])), "%v", name)
		checks := verifyAll(t, dir)
		bad, good := checks[0], checks[1]
		assert.Check(t, !bad.OK && len(bad.Problems) != 0 && bad.Problems[0].File == c.file &&
			strings.Contains(bad.Problems[0].What, c.want), "%s: %+v\nwant %s: %s", name, bad, c.file, c.want)
		assert.Check(t, good.OK, "%s: the other one is told broken: %+v", name, good)
	}
}

// What vanishes while it is looked at is not broken.
func TestVerifyGone(t *testing.T) {
	dir, ids := ct.Make(t, explained(), explained())
	checks, err := catalog.Verify(context.Background(), dir, append(ids, "20261121T010203.000000000Z-gone-000009"), nil)
	assert.Check(t, err == nil && len(checks) == 2, "%+v, %v", checks, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = catalog.Verify(ctx, dir, ids, nil)
	assert.Check(t, is.ErrorIs(err, context.Canceled), "interrupted")
}

func TestRead(t *testing.T) {
	deeper := explained()
	deeper.Chain = []explain.Part{ct.Part(explain.BlockDevice, &explain.Who{Kind: explain.KindDevice, Name: "sda"}, 15)}
	dir, ids := ct.Make(t, explained(), deeper, ct.One{ByHand: true}, ct.One{Age: 3600e9})
	torn := "20261121T010203.000000000Z-torn-000009"
	assert.NilError(t, os.Mkdir(filepath.Join(dir, torn), 0o700))
	calls := 0
	list, broken, err := catalog.Read(dir, catalog.Options{Progress: func(done, all int) {
		if calls++; done != calls || all != 5 {
			t.Errorf("progress %d of %d, call %d", done, all, calls)
		}
	}})
	assert.Assert(t, err == nil && len(list) == 4 && len(broken) == 1 && broken[0].ID == torn,
		"%d, %+v, %v", len(list), broken, err)
	for i := range list {
		s := &list[i]
		assert.Check(t, s.ID == ids[i] && strings.HasPrefix(s.ID, s.Short) && s.ByHand() == (i == 2) &&
			(s.Blame == nil) == (i >= 2), "%+v", s)
	}
	assert.Check(t, list[0].Blame.Cause == explain.Preempted && list[1].Blame.Cause == explain.BlockDevice &&
		list[3].Unexplained != "", "%+v, %+v, %q", list[0].Blame, list[1].Blame, list[3].Unexplained)
	late, _, err := catalog.Read(dir, catalog.Options{Since: ct.Start.Add(1800e9)})
	assert.Check(t, err == nil && len(late) == 1 && late[0].ID == ids[3], "since: %+v, %v", late, err)
	story, err := catalog.ReadDetails(filepath.Join(dir, ids[1]))
	assert.Check(t, err == nil && story.Before != nil && story.Before.ID == ids[0] && story.After != nil &&
		story.After.ID == ids[2] && story.Report != nil && len(story.Files) == 5, "%+v, %v", story, err)
	last, err := catalog.ReadDetails(filepath.Join(dir, ids[3]))
	assert.Check(t, err == nil && last.After == nil && last.Before != nil && last.Report == nil,
		"%+v, %v", last, err)
	list, broken, err = catalog.Read(t.TempDir(), catalog.Options{})
	assert.Check(t, err == nil && len(list)+len(broken) == 0, "empty: %v, %v, %v", list, broken, err)
	_, _, err = catalog.Read(filepath.Join(dir, "none"), catalog.Options{})
	assert.Check(t, is.ErrorIs(err, os.ErrNotExist), "missing")
}

// An explanation may come from anywhere.
func FuzzParseReport(f *testing.F) {
	one := explained()
	data, err := json.Marshal((&ct.One{Rule: "r", Comm: "c", TID: 1, DelayNS: 20e6, Parts: one.Parts}).Report())
	assert.NilError(f, err)
	f.Add(data)
	f.Add([]byte(`{"version":1,"outliers":[{"delay_ns":5,"parts":[{"ns":9223372036854775807},{"ns":9223372036854775807}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := catalog.ParseReport(data)
		if err != nil {
			return
		}
		for i := range r.Outliers {
			var sum int64
			for _, p := range r.Outliers[i].Parts {
				sum += p.NS
			}
			assert.Check(t, sum == r.Outliers[i].DelayNS,
				"parts of %d ns passed for a delay of %d ns", sum, r.Outliers[i].DelayNS)
		}
	})
}
