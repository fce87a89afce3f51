package export_test

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/tailcam/tailcam/export"
)

// Write the last 10 ms before the outlier as text to standard output.
func ExampleRun() {
	const dir = "/var/lib/tailcam/snapshots/20261121T013004.557441426Z-wakeup-000001"
	result, err := export.Run(context.Background(), dir, os.Stdout, &export.Options{
		Format: export.Text,
		Out:    export.Stdout,
		Before: 10 * time.Millisecond,
		After:  -1, // all
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, damage := range result.Damage {
		log.Print(damage)
	}
}
