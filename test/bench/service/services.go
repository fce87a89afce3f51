package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tailcam/tailcam/test/bench/stat"
)

// redis is a server and what redis-benchmark is asked to do.
type redis struct {
	*server
	client   place
	port     int
	requests int
}

func startRedis(ctx context.Context, e *env) (client, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(e.dir, "redis")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	s, err := e.server.serve(ctx, nil, listens(port), "redis-server", "--port", strconv.Itoa(port), "--bind", "127.0.0.1",
		"--dir", dir, "--save", "", "--appendonly", "no", "--daemonize", "no")
	if err != nil {
		return nil, err
	}
	r := &redis{server: s, client: e.client, port: port}
	err = r.fill(ctx)
	if err == nil {
		r.requests, err = count(e.seconds, 10_000, func(n int) (float64, error) {
			s, err := r.benchmark(ctx, "get", n)
			return s.NS * float64(n) / 1e9, err
		})
	}
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return r, nil
}

// fill sets the key that is read.
func (r *redis) fill(ctx context.Context) error {
	_, err := r.benchmark(ctx, "set", 1)
	return err
}

func (r *redis) restart(ctx context.Context, environ []string) error {
	s, err := r.again(ctx, environ)
	if err != nil {
		return err
	}
	r.server = s
	return r.fill(ctx)
}

func (r *redis) run(ctx context.Context) (sample, error) {
	s, err := r.benchmark(ctx, "get", r.requests)
	s.requests = float64(r.requests)
	return s, err
}

func (r *redis) benchmark(ctx context.Context, test string, requests int) (sample, error) {
	out, err := r.client.output(ctx, "redis-benchmark", "-h", "127.0.0.1", "-p", strconv.Itoa(r.port), "-t", test,
		"-c", "20", "-n", strconv.Itoa(requests), "--csv")
	if err != nil {
		return sample{}, err
	}
	return parseRedis(out)
}

// parseRedis reads redis-benchmark --csv of one test.
func parseRedis(out []byte) (s sample, err error) {
	lines, err := csv.NewReader(bytes.NewReader(out)).ReadAll()
	if err != nil || len(lines) != 2 {
		return s, fmt.Errorf("redis-benchmark printed %q", out)
	}
	of := map[string]float64{}
	for i, name := range lines[0] {
		of[name], _ = strconv.ParseFloat(lines[1][i], 64) // one is the test's name
	}
	if of["rps"] <= 0 || of["p50_latency_ms"] <= 0 || of["p99_latency_ms"] <= 0 {
		return s, fmt.Errorf("redis-benchmark printed %q", out)
	}
	return sample{NS: 1e9 / of["rps"], P50: of["p50_latency_ms"] * 1e6, P99: of["p99_latency_ms"] * 1e6}, nil
}

// nginx is a server of one small file.
type nginx struct {
	*server
	client  place
	port    int
	seconds int
}

const nginxConf = `daemon off;
worker_processes 1;
pid %[1]s/pid;
error_log stderr warn;
events { worker_connections 256; }
http {
	access_log off;
	keepalive_requests 1000000000;
	client_body_temp_path %[1]s/1; proxy_temp_path %[1]s/2; fastcgi_temp_path %[1]s/3;
	uwsgi_temp_path %[1]s/4; scgi_temp_path %[1]s/5;
	server { listen 127.0.0.1:%[2]d; root %[1]s/html; location = %[3]s { stub_status; } }
}
`

// nginxStatus is where nginx tells how many requests it has served.
const nginxStatus = "/status"

func startNginx(ctx context.Context, e *env) (client, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(e.dir, "nginx")
	conf := filepath.Join(dir, "nginx.conf")
	if err := errors.Join(
		os.MkdirAll(filepath.Join(dir, "html"), 0o755),
		os.WriteFile(conf, fmt.Appendf(nil, nginxConf, dir, port, nginxStatus), 0o644),
		os.WriteFile(filepath.Join(dir, "html", "index.html"), bytes.Repeat([]byte("tailcam\n"), 76), 0o644),
	); err != nil {
		return nil, err
	}
	s, err := e.server.serve(ctx, nil, listens(port), "nginx", "-e", "stderr", "-p", dir, "-c", conf)
	if err != nil {
		return nil, err
	}
	return &nginx{s, e.client, port, whole(e.seconds)}, nil
}

func (n *nginx) restart(ctx context.Context, environ []string) error {
	s, err := n.again(ctx, environ)
	if err == nil {
		n.server = s
	}
	return err
}

func (n *nginx) run(ctx context.Context) (sample, error) {
	out, err := n.client.output(ctx, "wrk", "-t", "1", "-c", "20", "-d", strconv.Itoa(n.seconds), "--latency",
		fmt.Sprintf("http://127.0.0.1:%d/", n.port))
	if err != nil {
		return sample{}, err
	}
	return parseWrk(out)
}

var (
	wrkRate = regexp.MustCompile(`(?m)^Requests/sec: +([0-9.]+)$`)
	wrkDone = regexp.MustCompile(`(?m)^ +([0-9]+) requests in `)
	wrkP50  = regexp.MustCompile(`(?m)^ +50% +([0-9.]+(?:us|ms|s|m))$`)
	wrkP99  = regexp.MustCompile(`(?m)^ +99% +([0-9.]+(?:us|ms|s|m))$`)
	wrkBad  = regexp.MustCompile(`(?m)^ +(?:Socket errors|Non-2xx).*$`)
)

// parseWrk reads wrk --latency.
func parseWrk(out []byte) (s sample, err error) {
	rate, done := wrkRate.FindSubmatch(out), wrkDone.FindSubmatch(out)
	p50, p99 := wrkP50.FindSubmatch(out), wrkP99.FindSubmatch(out)
	if bad := wrkBad.Find(out); bad != nil {
		return s, fmt.Errorf("wrk:%s", bad)
	}
	if rate == nil || p50 == nil || p99 == nil || done == nil {
		return s, fmt.Errorf("wrk printed %q", out)
	}
	perSecond, err := strconv.ParseFloat(string(rate[1]), 64)
	if err != nil || perSecond <= 0 {
		return s, fmt.Errorf("wrk printed %q", out)
	}
	median, err1 := time.ParseDuration(string(p50[1]))
	tail, err2 := time.ParseDuration(string(p99[1]))
	requests, err3 := strconv.ParseFloat(string(done[1]), 64)
	return sample{NS: 1e9 / perSecond, P50: float64(median), P99: float64(tail), requests: requests}, errors.Join(err1, err2, err3)
}

// postgres is a server that keeps all in memory.
type postgres struct {
	*server
	client   place
	bin, dir string
	seconds  int
	rate     float64 // transactions a second, at random times; 0: one after the other
}

// paced is how much of what a server can do is asked of it.
const paced = 1.0 / 3

// startPaced starts a server that has time to spare: a client that waits for answers only, and so
// takes all of the CPUs, sees the scheduler's slices in its 99th percentile.
func startPaced(ctx context.Context, e *env) (client, error) {
	p, err := newPostgres(ctx, e, "paced")
	if err != nil {
		return nil, err
	}
	var s sample
	for range 2 { // the first warms up
		if s, err = p.run(ctx); err != nil {
			return nil, errors.Join(err, p.stop())
		}
	}
	p.rate = paced * 1e9 / s.NS
	return p, nil
}

func startPostgres(ctx context.Context, e *env) (client, error) {
	p, err := newPostgres(ctx, e, "postgres")
	if err != nil {
		return nil, err
	}
	return p, nil
}

func newPostgres(ctx context.Context, e *env, name string) (*postgres, error) {
	p := &postgres{client: e.client, bin: filepath.Dir(find(postgresPattern)), dir: filepath.Join(e.dir, name), seconds: whole(e.seconds)}
	if err := os.Mkdir(p.dir, 0o755); err != nil {
		return nil, err
	}
	var as *syscall.Credential // not root: it refuses that
	as, err := credential("postgres", p.dir)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(p.dir, "data")
	if _, err := outputAs(ctx, as, filepath.Join(p.bin, "initdb"), "-D", data, "--no-sync", "-A", "trust", "-U", "postgres"); err != nil {
		return nil, err
	}
	ready := func(*server) error {
		_, err := outputAs(ctx, as, filepath.Join(p.bin, "pg_isready"), "-q", "-h", p.dir)
		return err
	}
	p.server, err = e.server.serve(ctx, as, ready, filepath.Join(p.bin, "postgres"), "-D", data, "-k", p.dir, "-h", "", "-c", "fsync=off")
	if err != nil {
		return nil, err
	}
	if _, err := p.bench(ctx, "--initialize", "--quiet", "--scale", "1"); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

func (p *postgres) bench(ctx context.Context, args ...string) ([]byte, error) {
	return p.client.output(ctx, filepath.Join(p.bin, "pgbench"), slices.Concat(p.connection(), args, []string{"postgres"})...)
}

func (p *postgres) connection() []string { return []string{"-h", p.dir, "-U", "postgres"} }

func (p *postgres) restart(ctx context.Context, environ []string) error {
	s, err := p.again(ctx, environ)
	if err == nil {
		p.server = s
	}
	return err
}

func (p *postgres) run(ctx context.Context) (sample, error) {
	logs, err := os.MkdirTemp(p.dir, "log-")
	if err != nil {
		return sample{}, err
	}
	defer func() { _ = os.RemoveAll(logs) }() // read by then
	args := []string{
		"-S", "-n", "-M", "prepared", "-c", "4", "-j", "2", "-T", strconv.Itoa(p.seconds),
		"--log", "--log-prefix", filepath.Join(logs, "log"),
	}
	if p.rate > 0 {
		args = append(args, "--rate", strconv.FormatFloat(p.rate, 'f', 0, 64))
	} else {
		args = append(args, "--sampling-rate", "0.1")
	}
	out, err := p.bench(ctx, args...)
	if err != nil {
		return sample{}, err
	}
	s, err := parsePgbench(out)
	if err != nil {
		return s, err
	}
	files, err := filepath.Glob(filepath.Join(logs, "log.*"))
	if err != nil {
		return s, err
	}
	var all []float64
	for _, f := range files {
		transactions, err := readPgbenchLog(f)
		if err != nil {
			return s, err
		}
		for _, t := range transactions {
			all = append(all, t.took)
		}
	}
	if len(all) == 0 {
		return s, errors.New("pgbench has logged no transaction")
	}
	s.P50, s.P99 = quantiles(all)
	if p.rate > 0 { // from when it was due
		s.NS = sum(all) / float64(len(all))
	}
	return s, nil
}

func sum(list []float64) (s float64) {
	for _, x := range list {
		s += x
	}
	return s
}

var (
	pgbenchRate = regexp.MustCompile(`(?m)^tps = ([0-9.]+) \(without initial connection time\)$`)
	pgbenchDone = regexp.MustCompile(`(?m)^number of transactions actually processed: ([0-9]+)$`)
)

// parsePgbench reads the time of a transaction.
func parsePgbench(out []byte) (s sample, err error) {
	m, done := pgbenchRate.FindSubmatch(out), pgbenchDone.FindSubmatch(out)
	if m == nil || done == nil {
		return s, fmt.Errorf("pgbench printed %q", out)
	}
	perSecond, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil || perSecond <= 0 {
		return s, fmt.Errorf("pgbench printed %q", out)
	}
	requests, err := strconv.ParseFloat(string(done[1]), 64)
	return sample{NS: 1e9 / perSecond, requests: requests}, err
}

// transaction is a line of pgbench's log.
type transaction struct {
	took float64 // ns, a whole number of us
	end  time.Time
}

func readPgbenchLog(path string) ([]transaction, error) {
	log, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parsePgbenchLog(log)
}

// parsePgbenchLog reads of each logged transaction its time, the third number of a line, in
// microseconds, and its end, the fifth and sixth: seconds and microseconds. A last line that is
// not whole is left out.
func parsePgbenchLog(log []byte) (list []transaction, err error) {
	log = log[:bytes.LastIndexByte(log, '\n')+1]
	for lines := bufio.NewScanner(bytes.NewReader(log)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 6 {
			return nil, fmt.Errorf("pgbench logged %q", lines.Text())
		}
		took, err1 := strconv.ParseFloat(f[2], 64)
		seconds, err2 := strconv.ParseInt(f[4], 10, 64)
		us, err3 := strconv.ParseInt(f[5], 10, 64)
		if errors.Join(err1, err2, err3) != nil {
			return nil, fmt.Errorf("pgbench logged %q", lines.Text())
		}
		list = append(list, transaction{took * 1000, time.Unix(seconds, us*1000)})
	}
	return list, nil
}

// quantiles are the median and the 99th percentile of times, which it sorts.
func quantiles(took []float64) (p50, p99 float64) {
	slices.Sort(took)
	spread(took)
	return stat.Quantile(took, 0.5), stat.Quantile(took, 0.99)
}

// spread has sorted times that are whole microseconds evenly within theirs: 1 us is some
// percent of a transaction.
func spread(sorted []float64) {
	for first := 0; first < len(sorted); {
		us, n := sorted[first], first
		for n < len(sorted) && sorted[n] == us {
			n++
		}
		for i := first; i < n; i++ {
			sorted[i] = us + 1000*(float64(i-first)+0.5)/float64(n-first)
		}
		first = n
	}
}

// whole rounds up, for clients that take whole seconds.
func whole(seconds float64) int { return max(1, int(seconds+0.5)) }
