package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tailcam/tailcam/internal/accounts"
)

// Names of variants with activities.
const (
	vActivities = "activities"
	vTokens     = "tokens"
	vLive       = "live"
	vGroups     = "groups"
	vAll        = "all"
	vUprobes    = "uprobes"
)

// carried says whether requests have tokens, and how many others are live meanwhile.
type carried struct {
	on   bool
	live int
}

// activities is a tailcam with activities.
type activities struct {
	name, title string
	groups      []string // of accounts; nil: as shipped
	tokens      carried
	declared    bool // by rules
	only        []string
}

// withActivities are measured only if they are asked for. Those with the same flags share a daemon.
var withActivities = []activities{
	{name: vActivities, title: "activities, nobody takes part"},
	{name: vTokens, title: "activities, a token a request", tokens: carried{on: true}},
	{name: vLive, title: "activities, a token a request, 100,000 others live", tokens: carried{on: true, live: 100_000}},
	{name: vGroups, title: "activities, all groups, nobody takes part", groups: accounts.Names()},
	{name: vAll, title: "activities, all groups, a token a request", groups: accounts.Names(), tokens: carried{on: true}},
	{name: vUprobes, title: "activities by rules, two uprobes a request", declared: true, only: []string{"nginx", "pgbench"}},
}

// variant is what is measured of it. The caller must have checked that the program is there.
func (a *activities) variant() (variant, error) {
	t := tailcam{name: a.name, program: ownProgram, flags: []string{"--activities-enabled", "true"}}
	if a.groups != nil {
		t.flags = append(t.flags, "--activities-groups", strings.Join(a.groups, ","))
	}
	err := t.unlimited()
	v := variant{name: a.name, title: a.title, ours: true, host: strings.Join(t.flags, " "), tokens: a.tokens, only: a.only, start: t.start}
	if a.declared {
		v.host, v.accounted, v.start = a.name, true, t.declaring
	}
	v.accounted = v.accounted || a.tokens.on
	return v, err
}

// measures says whether a load runs under the variant.
func (v *variant) measures(load string) bool {
	return len(v.only) == 0 || slices.Contains(v.only, load)
}

// together groups variants that share what is started, which are next to each other.
func together(variants []variant) (groups [][]variant) {
	for i := range variants {
		if i > 0 && variants[i].host != "" && variants[i].host == variants[i-1].host {
			last := &groups[len(groups)-1]
			*last = append(*last, variants[i])
			continue
		}
		groups = append(groups, variants[i:i+1:i+1])
	}
	return groups
}

// Rules that mark requests of PostgreSQL and nginx, and where these are there.
const (
	examples        = "docs/activities-examples.md"
	examplePostgres = "/usr/lib/postgresql/15/bin/postgres"
	exampleNginx    = "/usr/sbin/nginx"
)

// declaredRules are these rules, for the programs of this machine.
func declaredRules() (string, error) {
	page, err := os.ReadFile(examples)
	if err != nil {
		return "", err
	}
	rules := "rules:\n"
	for _, part := range strings.Split(string(page), "```yaml\nrules:\n")[1:] {
		rule, _, _ := strings.Cut(part, "```")
		rules += rule
	}
	return strings.NewReplacer(examplePostgres, cmp.Or(find(postgresPattern), examplePostgres),
		exampleNginx, cmp.Or(find("nginx"), exampleNginx)).Replace(rules), nil
}

// declaring starts a daemon with these rules, too.
func (t tailcam) declaring(ctx context.Context, e *env) (running, error) {
	rules, err := declaredRules()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(e.dir, "activities.yaml")
	if err := os.WriteFile(path, []byte(rules), 0o644); err != nil {
		return nil, err
	}
	t.flags = append(slices.Clip(t.flags), "--rules", "configs/rules.d", "--rules", path)
	return t.start(ctx, e)
}

// A library for LD_PRELOAD that gives each request of a server a token.
const (
	tokensSource  = "test/bench/service/src/tokens.c"
	tokensLibrary = "tokens.so"
)

// compileTokens builds the library.
func compileTokens(ctx context.Context, e *env) error {
	source, err1 := filepath.Abs(tokensSource)
	include, err2 := filepath.Abs("clients/c")
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	_, err := output(ctx, "gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-ftls-model=initial-exec", "-pthread",
		"-I"+include, "-o", filepath.Join(e.dir, tokensLibrary), source)
	return err
}

// environ has a server give its requests tokens of a daemon.
func (c carried) environ(e *env, d *daemon) []string {
	return []string{
		"LD_PRELOAD=" + filepath.Join(e.dir, tokensLibrary),
		"TOKENS_SOCKET=" + filepath.Join(d.dir, activitySocket),
		"TOKENS_LIVE=" + strconv.Itoa(c.live),
	}
}

// restarter is a client whose server can be started again with further variables in its environment.
type restarter interface {
	restart(ctx context.Context, environ []string) error
}

// give restarts a client's server so that its requests have tokens, until take.
func (c carried) give(ctx context.Context, e *env, d *daemon, to client) (take func() error, err error) {
	r, ok := to.(restarter)
	if !ok {
		return nil, errors.New("its requests cannot have tokens: leave it out with -only")
	}
	if err := r.restart(ctx, c.environ(e, d)); err != nil {
		return nil, err
	}
	return func() error { return r.restart(ctx, nil) }, nil
}

// counted is how many activities a daemon knows to have ended.
func (d *daemon) counted(ctx context.Context) (float64, error) {
	info, err := d.api.Activities(ctx, false)
	if err != nil {
		return 0, err
	}
	return float64(info.Count + info.Missed), nil
}

// late is how long a daemon may take to see that activities have ended.
const late = 5 * time.Second

// accounted is observed, and fails if less than half of the requests were activities: as the daemon looks
// for them now and then, it does not know all that were in a process that has ended.
func (d *daemon) accounted(ctx context.Context, c client) (sample, error) {
	before, err := d.counted(ctx)
	if err != nil {
		return sample{}, err
	}
	s, err := observed(ctx, d, c)
	if err != nil {
		return s, err
	}
	for wait := time.Now().Add(late); ; time.Sleep(100 * time.Millisecond) {
		after, err := d.counted(ctx)
		if n := after - before; err != nil || n >= math.Floor(s.requests/2) {
			return s, err
		} else if time.Now().After(wait) {
			return s, fmt.Errorf("%.0f activities of %.0f requests", n, s.requests)
		}
	}
}
