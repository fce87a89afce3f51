package snapshot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadNames(t *testing.T) {
	dir := t.TempDir()
	if n, err := ReadNames(dir); err != nil || len(n.Tasks) != 0 {
		t.Errorf("a snapshot without names: %+v, %v", n, err)
	}
	for text, want := range map[string]string{
		`{"version":1,"tasks":[{"tid":7,"comm":"sh","future":1}],"functions":{"0x10":"f"},"new":2}`: "",
		`{"version":1,"tasks":[{"tid":7`: "unexpected end",
		`{"version":2}`:                  "schema version 2",
		`{}`:                             "schema version 0",
		`[]`:                             "cannot unmarshal",
	} {
		if err := os.WriteFile(filepath.Join(dir, TasksFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		n, err := ReadNames(dir)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want == "" && (len(n.Tasks) != 1 || n.Tasks[0].TID != 7 || n.Functions["0x10"] != "f"):
			t.Errorf("%s: %+v", text, n)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
