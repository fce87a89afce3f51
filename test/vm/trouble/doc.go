// Package trouble holds tests that ruin the virtual machine they run in, each
// in another way. The harness's own tests run them, to see that it notices.
package trouble
