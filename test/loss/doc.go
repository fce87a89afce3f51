// Package loss holds the recorder to its promise: whatever a snapshot does
// not have, it tells of. A generator makes records that are numbered, on every
// CPU; outliers come alone and in bursts; the snapshots are read back from the
// disk, and any hole that is not accounted for fails.
package loss
