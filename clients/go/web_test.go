package tailcam_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	tailcam "github.com/tailcam/tailcam/clients/go"
	"github.com/tailcam/tailcam/test/support/activitypeer"
)

// The example of docs/activities-examples.md: from here to the next such line.
// ----------------------------------------------------------------------------

// traced starts a span for each request, as OpenTelemetry's own middleware does.
func traced(tracer trace.Tracer, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := tracer.Start(r.Context(), r.URL.Path)
		defer span.End()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// accounted makes each request an activity, with the ids of its span, and gives the span what
// the request has cost. h may be nil: then it does nothing.
func accounted(h *tailcam.Handle, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		thread := h.Thread() // this goroutine stays on its thread until Release
		defer thread.Release()
		t := h.Token(r.URL.Path)
		span := trace.SpanFromContext(r.Context())
		if ids := span.SpanContext(); ids.IsValid() {
			h.SetTrace(t, ids.TraceID(), ids.SpanID())
		}
		defer func() { // also when next panics
			thread.Switch(0)
			if account, ok := h.End(t); ok {
				span.SetAttributes(
					attribute.Int64("tailcam.wall_ns", int64(account.WallNS)),
					attribute.Int64("tailcam.cpu_ns", int64(account.CPUNS)),
					attribute.Int64("tailcam.runnable_ns", int64(account.RunnableNS)),
					attribute.Int64("tailcam.blocked_ns", int64(account.BlockedNS)),
					attribute.Int64("tailcam.blocked_disk_ns", int64(account.BlockedDiskNS)))
			}
		}()
		thread.Switch(t)
		next.ServeHTTP(w, r)
	})
}

// ----------------------------------------------------------------------------

// TestActivitiesOfGo: a web server with OpenTelemetry's SDK. Each request has an account, with
// its trace, and each span has what its request has cost.
func TestActivitiesOfGo(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	isOnThePage(t)
	h, err := tailcam.Open(activitypeer.StartKernel(t).Path, nil)
	assert.NilError(t, err)
	t.Cleanup(h.Close)

	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	t.Cleanup(func() { assert.Check(t, provider.Shutdown(context.WithoutCancel(t.Context()))) })
	mux := http.NewServeMux()
	var seen tailcam.Account // of /slow, as its handler reads it
	live := func(r *http.Request) (own tailcam.Account) {
		for a := range h.Accounts() {
			if a.TraceID == trace.SpanContextFromContext(r.Context()).TraceID().String() {
				own = a
			}
		}
		return own
	}
	mux.HandleFunc("/fast", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello\n") })
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		pause := unix.NsecToTimespec(int64(60 * time.Millisecond))
		for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &pause, &pause) == unix.EINTR {
		}
		seen = live(r)
	})
	mux.HandleFunc("/busy", func(w http.ResponseWriter, r *http.Request) {
		for end := cpu() + 40*time.Millisecond; cpu() < end; {
		}
	})
	server := httptest.NewServer(traced(provider.Tracer("web"), accounted(h, mux)))
	defer server.Close()
	get := func(path string) {
		t.Helper()
		answer, err := http.Get(server.URL + path)
		assert.NilError(t, err)
		_, err = io.Copy(io.Discard, answer.Body)
		assert.NilError(t, err)
		assert.NilError(t, answer.Body.Close())
	}
	for range 100 {
		get("/fast")
	}
	get("/slow")
	get("/busy")
	server.Close() // spans end after their answers

	of := map[string]map[string]int64{}
	n := map[string]int{}
	for _, s := range spans.GetSpans() {
		parts := map[string]int64{"wall": s.EndTime.Sub(s.StartTime).Nanoseconds(), "attributes": int64(len(s.Attributes))}
		for _, a := range s.Attributes {
			parts[string(a.Key)] = a.Value.AsInt64()
		}
		of[s.Name] = parts
		n[s.Name]++
		assert.Check(t, parts["attributes"] == 5, "%s has %v", s.Name, s.Attributes)
		sum := parts["tailcam.cpu_ns"] + parts["tailcam.runnable_ns"] + parts["tailcam.blocked_ns"]
		wall := parts["tailcam.wall_ns"]
		assert.Check(t, sum > 0 && sum <= wall, "%s took %d, its parts %d", s.Name, wall, sum)
		assert.Check(t, wall <= parts["wall"]+max(50_000, parts["wall"]/100), "%s took %d, its span %d", s.Name, wall, parts["wall"])
	}
	text, err := json.Marshal(of)
	assert.NilError(t, err)
	t.Logf("%s", text)
	assert.Check(t, n["/fast"] == 100 && n["/slow"] == 1 && n["/busy"] == 1, "%v", n)
	slow, busy := of["/slow"], of["/busy"]
	assert.Check(t, slow["tailcam.blocked_ns"] >= 60e6, "%v", slow)
	assert.Check(t, busy["tailcam.cpu_ns"] >= 40e6*99/100 && busy["tailcam.blocked_ns"] < busy["tailcam.cpu_ns"], "%v", busy)
	assert.Check(t, seen.Name == "/slow" && seen.BlockedTimerNS >= 60e6 && seen.SpanID != "", "%+v", seen)
}

// cpu is how long the calling thread has run.
func cpu() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano())
}

// isOnThePage demands that the page has the middleware that is tested here.
func isOnThePage(t *testing.T) {
	t.Helper()
	own, err := os.ReadFile("web_test.go")
	assert.NilError(t, err)
	_, code, _ := strings.Cut(string(own), "-\n\n// traced starts")
	code, _, _ = strings.Cut(code, "\n// ----")
	page, err := os.ReadFile("../../docs/activities-examples.md")
	assert.NilError(t, err)
	assert.Check(t, len(code) > 500 && strings.Contains(string(page), "// traced starts"+code), "the page has another middleware")
}
