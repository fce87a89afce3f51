package otlp

import (
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/slim/otlp/resource/v1"
)

// machineID is where systemd keeps the identity of a machine (machine-id(5)).
const machineID = "/etc/machine-id"

// resource describes the daemon and its host in the words of the semantic
// conventions. Options.Resource replaces what is here; an empty value removes it.
func (e *Exporter) resource() *resourcepb.Resource {
	attributes := map[string]string{
		"service.name": "tailcam", "service.version": e.opts.Version,
		"os.type": "linux", "host.arch": runtime.GOARCH,
	}
	name := e.opts.Host
	if name == "" {
		name, _ = os.Hostname() // without it, there is none
	}
	attributes["host.name"], attributes["service.instance.id"] = name, name
	if id, err := os.ReadFile(machineID); err == nil {
		attributes["host.id"] = strings.TrimSpace(string(id))
	}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		attributes["tailcam.kernel"] = unix.ByteSliceToString(uts.Release[:])
	}
	maps.Copy(attributes, e.opts.Resource)
	r := &resourcepb.Resource{}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if v := attributes[name]; v != "" {
			r.Attributes = append(r.Attributes, &commonpb.KeyValue{Key: clean(name), Value: stringValue(v)})
		}
	}
	return r
}

func (e *Exporter) scope() *commonpb.InstrumentationScope {
	return &commonpb.InstrumentationScope{Name: "github.com/tailcam/tailcam", Version: e.opts.Version}
}
