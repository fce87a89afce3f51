package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/term"
)

// encoded is a report as -O writes it.
func encoded(t testing.TB, r *Report) string {
	t.Helper()
	data, err := json.Marshal(r)
	assert.NilError(t, err)
	return fmt.Sprintf(`{"schema":%q,%s`, Schema, data[1:])
}

func TestBaselines(t *testing.T) {
	run := simulate(rand.New(rand.NewPCG(1, 1)), noise{}, 1)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		assert.NilError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	one := encoded(t, run)
	list, err := ReadBaselines([]string{write("one", one), write("two", one+"\n"+one+"\n")})
	assert.NilError(t, err)
	assert.Check(t, is.Len(list, 3))
	assert.Check(t, is.DeepEqual(list[0].Rules, run.Rules))

	slice := `{"outliers":0,"index":[1],"count":[1]}`
	head := `{"schema":"` + Schema + `","duration_ns":1,"slice_ns":1,"rules":[`
	for text, says := range map[string]string{
		"":                                  "empty",
		"null":                              "its schema is \"\"",
		"[]":                                "not the JSON of a run",
		"{":                                 "not the JSON of a run",
		"\x00\xff":                          "not the JSON of a run",
		one + "}":                           "not the JSON of a run",
		`{"schema":"x"}`:                    `its schema is "x"`,
		`{"schema":"\u001b[2J"}`:            `its schema is "\x1b[2J"`,
		strings.Repeat("[", 1e6):            "not the JSON of a run",
		strings.Repeat(`{"rules":[`, 20000): "not the JSON of a run",
		`{"schema":"` + Schema + `"}`:       "duration_ns 0",
		`{"schema":"` + Schema + `","duration_ns":1}`:                                                              "slice_ns 0",
		`{"schema":"` + Schema + `","duration_ns":1e300}`:                                                          "not the JSON of a run",
		head + `{"name":"a"},{"name":"a"}]}`:                                                                       `rule "a" comes twice`,
		head + strings.TrimSuffix(strings.Repeat(`{},`, 1001), ",") + `]}`:                                         "more than 1000 rules",
		head + `{"name":"a","slices":[` + strings.TrimSuffix(strings.Repeat(slice+",", maxSlices+1), ",") + `]}]}`: "more than 48 slices",
		head + `{"slices":[{"index":[1,2],"count":[1]}]}]}`:                                                        "2 buckets, but 1 counts",
		head + `{"slices":[{"index":[506],"count":[1]}]}]}`:                                                        "bucket 506: must be from 0 to 505",
		head + `{"slices":[{"index":[-1],"count":[1]}]}]}`:                                                         "bucket -1",
		head + `{"slices":[{"index":[3,3],"count":[1,1]}]}]}`:                                                      "bucket 3: must be from 4",
		head + `{"slices":[{"index":[3],"count":[-1]}]}]}`:                                                         "not the JSON of a run",
		head + `{"slices":[{"index":[3],"count":[18446744073709551615]}]}]}`:                                       "more delays",
		head + `{"slices":[{"index":[3,4],"count":[9007199254740992,9007199254740992]}]}]}`:                        "more delays",
		head + `{"slices":[{"outliers":18446744073709551615}]}]}`:                                                  "more outliers",
		head + `{"verdicts":[{"at_ns":-1}]}]}`:                                                                     "at_ns -1",
		head + `{"verdicts":[` + strings.TrimSuffix(strings.Repeat(`{},`, maxVerdicts+1), ",") + `]}]}`:            "more than 256 verdicts",
		strings.Repeat(`{"schema":"`+Schema+`","duration_ns":1,"slice_ns":1}`, maxBaselines+1):                     "more than 16 runs",
	} {
		_, err := ReadBaselines([]string{write("bad", text)})
		assert.Check(t, is.ErrorContains(err, says), "%.80q", text)
		assert.Check(t, err == nil || len(err.Error()) < 1000)
	}

	pipe := filepath.Join(dir, "pipe")
	assert.NilError(t, unix.Mkfifo(pipe, 0o600))
	huge := write("huge", "")
	assert.NilError(t, os.Truncate(huge, maxBaselineFile+1))
	for path, says := range map[string]string{pipe: "not a regular file", dir: "not a regular file", huge: "larger than 32 MiB", dir + "/none": "no such file"} {
		_, err := ReadBaselines([]string{path})
		assert.Check(t, is.ErrorContains(err, says), "%s", path)
	}
}

// Whatever passes for a baseline can be compared with, and the result is JSON.
func FuzzBaseline(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 1))
	f.Add([]byte(encoded(f, withVerdicts(random, 0.5, 9, 2))))
	f.Add([]byte(`{"schema":"` + Schema + `","duration_ns":1,"slice_ns":1,"rules":[{"name":"wakeup","track":"wakeup","slices":[{"outliers":9,"index":[505],"count":[9007199254740990]}],"verdicts":[{}]}]}`))
	run := withVerdicts(random, 0.2, 9, 2)
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := decodeBaselines("x", bytes.NewReader(data))
		if err != nil {
			return
		}
		run.Compare(list)
		_, err = json.Marshal(run)
		assert.NilError(t, err)
		var out bytes.Buffer
		run.Print(term.New(&out, &term.Options{}))
		assert.Check(t, !strings.ContainsAny(out.String(), "\x00\x1b"))
	})
}
