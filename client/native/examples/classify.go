// The labels of a text: classify FOLDER TEXT
//
// CGO_CFLAGS=-Iinclude CGO_LDFLAGS=libmvprune.so.1 go build classify.go
package main

/*
#include <mvprune.h>
#include <stdlib.h>

// A list of one text in C's memory, which holds no address of Go's.
static mvprune_status run(const mvprune_model* model, const char* text, mvprune_output** output, mvprune_error** error) {
  mvprune_texts texts;
  MVPRUNE_INIT(texts);
  texts.texts = &text;
  texts.count = 1;
  return mvprune_run_texts(model, &texts, NULL, output, error);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"unsafe"
)

type labelled struct {
	label string
	logit float32
}

type classifier struct{ model *C.mvprune_model }

func check(status C.mvprune_status, failure *C.mvprune_error) error {
	if status == C.MVPRUNE_OK {
		return nil
	}
	defer C.mvprune_error_free(failure)
	return errors.New(C.GoString(C.mvprune_error_text(failure)))
}

func open(path string) (classifier, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var model *C.mvprune_model
	var failure *C.mvprune_error
	status := C.mvprune_open(name, nil, &model, &failure)
	return classifier{model}, check(status, failure)
}

func (one classifier) close() { C.mvprune_close(one.model) }

func (one classifier) logits(text string) ([]labelled, error) {
	given := C.CString(text)
	defer C.free(unsafe.Pointer(given))
	var output *C.mvprune_output
	var failure *C.mvprune_error
	if err := check(C.run(one.model, given, &output, &failure), failure); err != nil {
		return nil, err
	}
	defer C.mvprune_output_free(output)
	var columns C.int64_t
	first := C.mvprune_output_values(output, nil, &columns)
	values := unsafe.Slice(first, columns)
	found := make([]labelled, columns)
	for i, value := range values {
		found[i] = labelled{C.GoString(C.mvprune_label(one.model, C.int64_t(i))), float32(value)}
	}
	return found, nil
}

func answer(folder, text string) error {
	model, err := open(folder)
	if err != nil {
		return err
	}
	defer model.close()
	found, err := model.logits(text)
	for _, one := range found {
		fmt.Printf("%s %.6f\n", one.label, one.logit)
	}
	return err
}

func main() {
	if err := answer(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
