package api

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// notification is as Alertmanager 0.25 sends it, with one more field.
const notification = `{"receiver":"tailcam","status":"firing","version":"4","groupKey":"{}:{}","truncatedAlerts":0,"later":{"a":[1]},
"alerts":[{"status":"firing","labels":{"alertname":"HighLatency","pid":"7"},"annotations":{"summary":"slow"},"startsAt":"2026-11-23T09:00:00Z","endsAt":"0001-01-01T00:00:00Z","generatorURL":"","fingerprint":"bbb"},
{"status":"resolved","labels":{"alertname":"Gone"},"fingerprint":"ccc"}]}`

// TestAlertHandler: firing alerts of a notification reach the rules; what is wrong is told,
// and what is too much refused.
func TestAlertHandler(t *testing.T) {
	f := newFake()
	server := httptest.NewServer(AlertHandler(f, nil))
	defer server.Close()
	post := func(body string) (int, string) {
		t.Helper()
		resp, err := http.Post(server.URL+AlertsPath, "application/json", strings.NewReader(body))
		assert.NilError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		assert.NilError(t, err)
		return resp.StatusCode, strings.TrimSpace(string(text))
	}
	code, text := post(notification)
	assert.Check(t, code == http.StatusOK && text == `{"firing":1,"wanted":1,"fired":1}`, "%d %s", code, text)
	assert.Equal(t, <-f.took, "HighLatency")
	many := strings.Repeat(`{"status":"firing"},`, maxAlerts+1)
	for _, c := range []struct {
		body string
		code int
		want string
	}{
		{"", http.StatusBadRequest, "read notification"},
		{"[]", http.StatusBadRequest, "read notification"},
		{`{"version":"5"}`, http.StatusBadRequest, `version \"5\" is not known`},
		{`{"version":"4","alerts":[` + strings.Trim(many, ",") + "]}", http.StatusBadRequest, "1001 alerts are too many"},
		{`{"version":"4","alerts":[{"labels":{` + labels(maxLabels+1) + `}}]}`, http.StatusBadRequest, "65 labels"},
		{strings.Repeat(" ", maxAlertsBody) + "{}", http.StatusRequestEntityTooLarge, "too large"},
		{strings.Repeat(`{"a":`, 100_000), http.StatusBadRequest, "read notification"},
		{`{"version":"4"}`, http.StatusOK, `"firing":0`},
	} {
		code, text := post(c.body)
		assert.Check(t, code == c.code && strings.Contains(text, c.want), "%.60q: %d %s", c.body, code, text)
	}
	for code, header := range map[int]http.Header{
		http.StatusUnsupportedMediaType: {"Content-Type": {"text/plain"}},
		http.StatusForbidden:            {"Content-Type": {"application/json"}, "Origin": {"http://rebound.example"}},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+AlertsPath, strings.NewReader(notification))
		assert.NilError(t, err)
		req.Header = header
		resp, err := http.DefaultClient.Do(req)
		assert.NilError(t, err)
		resp.Body.Close()
		assert.Check(t, resp.StatusCode == code && len(f.took) == 0, "as a browser sends it: %s", resp.Status)
	}
	refused := 0
	for range 3 * webhookBurst {
		if code, _ := post("{}"); code == http.StatusTooManyRequests {
			refused++
		}
	}
	assert.Check(t, refused > 0)
	for _, path := range []string{"/v1/status", "/v1/trigger", "/"} {
		resp, err := http.Get(server.URL + path)
		assert.NilError(t, err)
		resp.Body.Close()
		assert.Check(t, resp.StatusCode == http.StatusNotFound, "the listener has %s", path)
	}
}

func labels(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"l%d":"v"`, i))
	}
	return strings.Join(all, ",")
}
