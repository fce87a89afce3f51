package helper

import (
	"os"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/internal/symbols"
	"github.com/tailcam/tailcam/test/support/threadctx"
)

// Helpers tell of a variable what this process would find itself.
func TestThreadLocal(t *testing.T) {
	h := newHelper(t, Options{})
	way := threadctx.Ways()[5]
	p := way.Build(t).Start(t, "place")
	want, err := symbols.New(nil).ThreadLocal(p.PID(), "otel_thread_ctx_v1")
	assert.NilError(t, err)
	got, err := h.ThreadLocal(p.PID(), "otel_thread_ctx_v1")
	assert.NilError(t, err)
	assert.Check(t, is.Equal(got, want))
	words, image, err := h.Words(p.PID(), want.Address)
	assert.NilError(t, err)
	wantWords, wantImage, err := process.Words(p.PID(), want.Address)
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(words, wantWords))
	assert.Check(t, is.Equal(image, wantImage))
	_, err = h.ThreadLocal(os.Getpid(), "otel_thread_ctx_v1")
	assert.Check(t, is.ErrorIs(err, symbols.ErrNoThreadLocal), "this process")
	_, _, err = h.Words(p.PID(), 16)
	assert.Check(t, err != nil, "nothing is mapped there")
	keys, program, err := h.ContextKeys(p.PID(), []string{"http.route", "unknown", "http.request.method"})
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(keys, []string{"", "http.route", "http.request.method"}), "of user.id, http.route, http.request.method")
	assert.Check(t, is.Equal(program, image))
	_, _, err = h.ContextKeys(os.Getpid(), []string{"http.route"})
	assert.Check(t, is.ErrorContains(err, "publishes no process context"))
	p.Go()
	p.End()
}
