package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tailcam/tailcam/internal/text"
)

// Bounds of what an engine may cause.
const (
	queryTime   = time.Minute // of one query, from connecting to the end of the answer
	dialTime    = 5 * time.Second
	maxAnswer   = 32 << 20 // bytes
	maxHeader   = 16 << 10 // bytes
	maxMessage  = 400      // bytes of its own words in an error
	errorAnswer = 8 << 10  // bytes that are read of an error
)

// Default places.
const (
	defaultDatabase = "default"
	defaultTable    = "tailcam_outliers"
	clickhousePort  = "8123" // its HTTP interface
	nativePort      = "9000"
)

// target is what a URL says.
type target struct {
	base   *url.URL // http or https, without user, query and fragment
	user   string
	loki   bool
	table  string // ClickHouse: `database`.`table`
	tenant string // Loki
}

// identifier is what a database or table may be called here. ClickHouse allows more,
// and would have it quoted.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

func parse(s string) (*target, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, errors.New("not a URL") // its error would repeat a password
	}
	t := &target{base: &url.URL{Scheme: u.Scheme, Host: u.Host}}
	if _, ok := u.User.Password(); ok {
		return nil, errors.New("has a password, which others see in the list of processes: " +
			"set TAILCAM_FLEET_PASSWORD or --fleet-password-file instead")
	}
	t.user = u.User.Username()
	switch u.Scheme {
	case "http", "https":
	case "clickhouse":
		t.base.Scheme = "http"
		switch u.Port() {
		case "":
			t.base.Host = net.JoinHostPort(u.Hostname(), clickhousePort)
		case nativePort:
			return nil, fmt.Errorf("port %s is ClickHouse's native protocol: use its HTTP interface, usually on port %s (or https:// on 8443)",
				nativePort, clickhousePort)
		}
	case "loki+http", "loki+https":
		t.loki, t.base.Scheme = true, strings.TrimPrefix(u.Scheme, "loki+")
	default:
		return nil, errors.New("does not begin with clickhouse://, http://, https://, loki+http:// or loki+https://")
	}
	if u.Hostname() == "" {
		return nil, errors.New("has no host")
	}
	if u.Fragment != "" {
		return nil, errors.New("has a fragment")
	}
	if t.loki {
		return t, t.parseLoki(u)
	}
	return t, t.parseClickHouse(u)
}

func (t *target) parseClickHouse(u *url.URL) error {
	database, table := strings.Trim(u.Path, "/"), defaultTable
	if database == "" {
		database = defaultDatabase
	}
	if err := parameter(u, "table", &table); err != nil {
		return err
	}
	for _, name := range []string{database, table} {
		if !identifier.MatchString(name) {
			return fmt.Errorf("names %q: databases and tables are letters, digits and _", text.Clean(name))
		}
	}
	t.table = "`" + database + "`.`" + table + "`"
	return nil
}

func (t *target) parseLoki(u *url.URL) error {
	t.base.Path = strings.TrimRight(u.Path, "/")
	return parameter(u, "tenant", &t.tenant)
}

// parameter reads the only parameter that a URL may have.
func parameter(u *url.URL, name string, to *string) error {
	all, err := url.ParseQuery(u.RawQuery)
	for other, values := range all {
		if other != name || len(values) != 1 {
			return fmt.Errorf("has parameter %q: only one %s=NAME is known", text.Clean(other), name)
		}
		*to = values[0]
	}
	if err != nil {
		return fmt.Errorf("has parameters that are not %s=NAME", name)
	}
	return nil
}

// client sends queries and reads answers. Redirects are not followed, because headers
// have the password.
type client struct {
	target
	password, agent string
	http            *http.Client
}

func newClient(t *target, o *Options) *client {
	dialer := &net.Dialer{Timeout: dialTime}
	return &client{
		target: *t, password: o.Password, agent: "tailcam/" + o.Version,
		http: &http.Client{
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: &http.Transport{
				Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSHandshakeTimeout: dialTime,
				MaxResponseHeaderBytes: maxHeader, MaxIdleConnsPerHost: 2, ForceAttemptHTTP2: true,
				DisableCompression: true, // an answer of a few bytes may become gigabytes
			},
		},
	}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// do sends a request and gives the answer to read, which must not keep it.
func (c *client) do(ctx context.Context, req *http.Request, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	req = req.WithContext(ctx)
	req.Header.Set("User-Agent", c.agent)
	if c.user != "" || c.password != "" {
		req.SetBasicAuth(c.user, c.password)
	}
	resp, err := c.http.Do(req) //nolint:gosec // to whom is what the caller has chosen
	if err != nil {
		return c.failed(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, errorAnswer)) // what there is of it
		return c.refused(resp, body)
	}
	body := &bounded{r: resp.Body, left: maxAnswer}
	if err := read(body); err != nil {
		if body.left < 0 {
			return fmt.Errorf("%s: answer longer than %d MiB: ask for less with --since, --where or --count", c.base.Host, maxAnswer>>20)
		}
		return c.failed(ctx, err)
	}
	return nil
}

// failed explains why there is no answer.
func (c *client) failed(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%s: no answer within %s: ask for less with --since or --where", c.base.Host, queryTime)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // without the URL, which has the query
	}
	return fmt.Errorf("%s: %w", c.base.Host, err)
}

// refused explains an answer that is no success.
func (c *client) refused(resp *http.Response, body []byte) error {
	why := clip(strings.TrimSpace(string(body)))
	switch {
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden:
		return fmt.Errorf("%s: access denied: check the user in the URL and TAILCAM_FLEET_PASSWORD: %s", c.base.Host, why)
	case resp.StatusCode/100 == 3:
		return fmt.Errorf("%s: redirects to %q, which is not followed", c.base.Host, clip(resp.Header.Get("Location")))
	}
	if why == "" {
		why = resp.Status
	}
	return fmt.Errorf("%s: %s", c.base.Host, why)
}

// clip makes an engine's words fit for a message.
func clip(s string) string { return text.Clean(s[:min(len(s), maxMessage)]) }

// bounded reads at most left bytes; one more is an error.
type bounded struct {
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errors.New("too long")
	}
	return n, err
}

// checkSnapshotURL checks a template of URLs.
func checkSnapshotURL(s string) error {
	if s == "" {
		return nil
	}
	if err := checkURL(snapshotURL(s, "h", "s")); err != nil {
		return fmt.Errorf("--snapshot-url %w", err)
	}
	if !strings.Contains(s, "{snapshot}") {
		return errors.New("--snapshot-url has no {snapshot}")
	}
	return nil
}

// checkURL checks the URL of a snapshot, which others may have made.
func checkURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" && u.Scheme != "file":
		return errors.New("is not a URL, such as https://snapshots.example/{host}/{snapshot}")
	case !slices.Contains([]string{"http", "https", "s3", "gs", "file"}, u.Scheme):
		return fmt.Errorf("has the scheme %q: http, https, s3, gs and file are known", u.Scheme)
	}
	return nil
}

func snapshotURL(template, host, snapshot string) string {
	return strings.NewReplacer("{host}", url.PathEscape(host), "{snapshot}", url.PathEscape(snapshot)).Replace(template)
}
