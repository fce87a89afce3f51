package fleet

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct{ url, base, table, wrong string }{
		{"clickhouse://reader@db/fleet", "http://db:8123", "`fleet`.`tailcam_outliers`", ""},
		{"clickhouse://db:8124", "http://db:8124", "`default`.`tailcam_outliers`", ""},
		{"https://reader@[::1]:8443/fleet?table=other", "https://[::1]:8443", "`fleet`.`other`", ""},
		{"loki+https://loki:3100/prefix/?tenant=ops", "https://loki:3100/prefix", "", ""},
		{"clickhouse://db:9000/fleet", "", "", "port 9000 is ClickHouse's native protocol: use its HTTP interface, usually on port 8123 (or https:// on 8443)"},
		{"https://reader:secret@db", "", "", "has a password, which others see in the list of processes: set TAILCAM_FLEET_PASSWORD or --fleet-password-file instead"},
		{"db:8123", "", "", "does not begin with clickhouse://, http://, https://, loki+http:// or loki+https://"},
		{"http://user:secr\x00et@db", "", "", "not a URL"},
		{"http:///default", "", "", "has no host"},
		{"http://db/a`b", "", "", "names \"a`b\": databases and tables are letters, digits and _"},
		{"http://db/a?table=b;c", "", "", "has parameters that are not table=NAME"},
		{"http://db/a?table=b%60", "", "", "names \"b`\": databases and tables are letters, digits and _"},
		{"http://db/a?readonly=0", "", "", `has parameter "readonly": only one table=NAME is known`},
		{"loki+http://l?table=x", "", "", `has parameter "table": only one tenant=NAME is known`},
		{"http://db/a#b", "", "", "has a fragment"},
	} {
		got, err := parse(tt.url)
		if tt.wrong != "" {
			assert.Check(t, is.Error(err, tt.wrong), "%s", tt.url)
			continue
		}
		assert.NilError(t, err, "%s", tt.url)
		assert.Check(t, got.base.String() == tt.base && got.table == tt.table, "%s: %+v", tt.url, got)
	}
}

func TestQuote(t *testing.T) {
	assert.Check(t, is.Equal(`'a\x27 OR 1\x3D1\x5C\x00\xFF'`, quote("a' OR 1=1\\\x00\xff")))
}

// FuzzQuote: nothing but the end ends the literal.
func FuzzQuote(f *testing.F) {
	f.Add(`'; DROP TABLE x; --\`)
	f.Fuzz(func(t *testing.T, s string) {
		q := quote(s)
		inner := q[1 : len(q)-1]
		assert.Check(t, q[0] == '\'' && q[len(q)-1] == '\'' && !strings.ContainsAny(inner, "'\"`;\n\x00"))
		for i := strings.IndexByte(inner, '\\'); i >= 0; i = strings.IndexByte(inner, '\\') {
			assert.Assert(t, len(inner) >= i+4 && inner[i+1] == 'x')
			inner = inner[i+4:]
		}
	})
}

func TestAmong(t *testing.T) {
	assert.Check(t, is.Equal(`name IN ('a', '\x27')`, among([]string{"a", "'"})))
	assert.Check(t, is.Equal("1", among([]string{"a", strings.Repeat("'", maxNames/4)})))
}

func TestParseWhere(t *testing.T) {
	got, err := ParseWhere([]string{"host=a=b", "pod="})
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(map[Key]string{Host: "a=b", Pod: ""}, got))
	for _, tt := range []struct {
		list []string
		want string
	}{
		{[]string{"host"}, `"host" is not KEY=VALUE with one of the keys ` + Words(Keys)},
		{[]string{"comm=x"}, `"comm=x" is not KEY=VALUE with one of the keys ` + Words(Keys)},
		{[]string{"host=a", "host=b"}, "host is given twice"},
		{[]string{"host=" + strings.Repeat("a", maxValue+1)}, "value of host is longer than 4096 bytes"},
	} {
		_, err := ParseWhere(tt.list)
		assert.Check(t, is.Error(err, tt.want))
	}
}

func TestSnapshotURL(t *testing.T) {
	assert.Check(t, is.Equal("https://s/a%2F..%2F%3Fx/%0A", snapshotURL("https://s/{host}/{snapshot}", "a/../?x", "\n")))
	assert.Check(t, checkSnapshotURL("s3://b/{host}/{snapshot}.tailcam"))
	for _, bad := range []string{"javascript://x/{snapshot}", "https://s/{host}", "{snapshot}", "/{snapshot}"} {
		assert.Check(t, checkSnapshotURL(bad) != nil, "%s", bad)
	}
}

// TestLinks: what a daemon has said is a link if it is one, unless there is another place.
func TestLinks(t *testing.T) {
	for said, want := range map[string]string{
		"s3://b/h/s.tailcam": "s3://b/h/s.tailcam", "https://s/h/s.tailcam": "https://s/h/s.tailcam", "": "", "javascript:alert(1)": "", "://": "", "/etc/passwd": "",
	} {
		l := &Link{Host: "h", Snapshot: "s", URL: said}
		(&Fleet{}).link(l)
		assert.Check(t, is.Equal(l.URL, want), "%q", said)
		(&Fleet{snapshots: "https://c/{host}/{snapshot}"}).link(l)
		assert.Check(t, is.Equal(l.URL, "https://c/h/s"))
	}
	(&Fleet{}).link(nil)
}

func TestRise(t *testing.T) {
	day := func(n int) time.Time { return time.Unix(0, 0).AddDate(0, 0, n) }
	releases := []exposure{{"1", 10, 1000 * time.Hour, day(0)}, {"2", 10, 1000 * time.Hour, day(1)}, {"3", 4, 100 * time.Hour, day(2)}, {"4", 1, 10 * time.Hour, day(3)}}
	of := func(perHour ...int64) map[string]change {
		m := map[string]change{}
		for i, n := range perHour {
			r := &releases[i]
			m[r.release] = change{"x", r.release, n * int64(r.time.Hours()), min(n, 1) * int64(r.time.Hours())}
		}
		return m
	}
	for _, tt := range []struct {
		perHour []int64
		want    string
	}{
		{[]int64{100, 100, 100, 100}, "none"},
		{[]int64{0, 0, 100, 110}, "3 new 0 100"},
		{[]int64{100, 100, 300, 310}, "3 100 300"},
		{[]int64{100, 110, 100, 900}, "4 104 900"},
		{[]int64{900, 900, 100, 100}, "none"}, // fell
		{[]int64{0, 0, 0, 0}, "none"},
	} {
		got := "none"
		if r := rise(releases, of(tt.perHour...)); r != nil {
			got = fmt.Sprintf("%s %d %d", r.Release, r.BeforeNSPerHour, r.AfterNSPerHour)
			if r.New {
				got = strings.Replace(got, " ", " new ", 1)
			}
		}
		assert.Check(t, is.Equal(tt.want, got), "%v", tt.perHour)
	}
	few := of(0, 0, 0, 100)
	few["4"] = change{"x", "4", 1e9, riseOutliers - 1}
	assert.Check(t, rise(releases, few) == nil, "two outliers are no rise")
	releases[0].time, releases[1].time, releases[2].time = time.Minute, time.Minute, time.Minute
	assert.Check(t, rise(releases, of(0, 0, 0, 100)) == nil, "nobody looked before")
}

// TestHostileEngine: an engine that lies costs an error.
func TestHostileEngine(t *testing.T) {
	var stolen atomic.Bool
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _, ok := r.BasicAuth()
		stolen.Store(ok)
	}))
	defer thief.Close()
	text := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, s) }
	}
	repeat := func(line string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for range 1 << 20 {
				if _, err := io.WriteString(w, line); err != nil {
					return
				}
			}
		}
	}
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   string // of the errors of ClickHouse and Loki
		loki   string
	}{
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, thief.URL, http.StatusTemporaryRedirect)
		},
			"redirects to", "redirects to"},
		"denied":             {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no \x1b[2J", http.StatusUnauthorized) }, `access denied: check the user in the URL and TAILCAM_FLEET_PASSWORD: no \x1b[2J`, "access denied"},
		"empty":              {text(""), "0 rows instead of one", "not an answer of Loki: EOF"},
		"garbage":            {text("\xff\xff{"), "not an answer of ClickHouse", "not an answer of Loki"},
		"error after rows":   {text("{\"hosts\":\"1\"}\nCode: 241, e.displayText() = DB::Exception: \x1b[2J Memory limit"), `Code: 241, e.displayText() = DB::Exception: \x1b[2J Memory limit`, "not an answer of Loki"},
		"wrong types":        {text(`{"hosts": [1], "data": {"resultType": "vector", "result": {}}}`), "not an answer of ClickHouse", "not an answer of Loki"},
		"wrong kind":         {text(`{"data": {"resultType": "matrix", "result": []}}`), "", "its result is no vector"},
		"a line without end": {repeat(strings.Repeat("x", 1000)), "token too long", "not an answer of Loki"},
		"rows without end":   {repeat(`{"hosts":"1","outliers":"1"}` + "\n"), "more rows than were asked for", "not an answer of Loki: its result is no vector"},
		"a gigabyte":         {repeat(strings.Repeat(" ", 999) + "\n"), "answer longer than 32 MiB: ask for less with --since, --where or --count", "answer longer than 32 MiB"},
		"deep":               {text(strings.Repeat("[", 1<<20)), "not an answer of ClickHouse", "not an answer of Loki"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(test.answer)
			defer s.Close()
			for prefix, want := range map[string]string{"": test.want, "loki+": test.loki} {
				f, err := Open(prefix+strings.Replace(s.URL, "//", "//reader@", 1), &Options{Password: "secret"})
				assert.NilError(t, err)
				defer f.Close()
				_, err = f.Top(t.Context(), &Query{By: Host, Since: time.Unix(0, 0), Until: time.Unix(9, 0), Count: 10})
				if want != "" {
					assert.Check(t, is.ErrorContains(err, want), "%s", prefix)
					assert.Check(t, !strings.ContainsAny(err.Error(), "\x1b\n") && len(err.Error()) < 1000, "%q", err)
				}
			}
		})
	}
	assert.Check(t, !stolen.Load(), "a redirect got the password")
}

func TestQueryCheck(t *testing.T) {
	f, err := Open("http://127.0.0.1:1", nil)
	assert.NilError(t, err)
	good := Query{By: Host, Since: time.Unix(1, 0), Until: time.Unix(2, 0), Count: 1}
	for want, change := range map[string]func(*Query){
		"invalid count 0: must be 1 to 10000": func(q *Query) { q.Count = 0 },
		"empty time range":                    func(q *Query) { q.Until = q.Since },
		"time range outside 1970 to 2106":     func(q *Query) { q.Since = time.Unix(-1, 0) },
		`unknown key "comm"`:                  func(q *Query) { q.By = "comm" },
		`unknown key "x"`:                     func(q *Query) { q.Where = map[Key]string{"x": ""} },
		`unknown kind of release "host"`:      func(q *Query) { q.SinceRelease = Host },
	} {
		q := good
		change(&q)
		_, err := f.Top(t.Context(), &q)
		assert.Check(t, is.Error(err, want))
	}
	_, err = f.Events(t.Context(), &good)
	assert.Check(t, is.ErrorContains(err, "127.0.0.1:1: dial tcp"))
}
