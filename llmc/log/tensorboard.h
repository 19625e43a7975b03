// Writes a run as TensorBoard's event files: `tensorboard --logdir OUT` draws its scalars and texts.
//
// An event file is a sequence of records (TFRecord), all numbers little-endian:
//
//     8 bytes   length of the data
//     4 bytes   masked CRC-32C of these 8 bytes
//     n bytes   the data: a protocol buffer, Event
//     4 bytes   masked CRC-32C of the data
//
// The CRC is Castagnoli's; masked, it is rotated right by 15 bits and 0xa282ead8 is added. Of Event, this much is used
// (protocol buffer syntax, with the numbers of the fields):
//
//     Event      double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5;
//                SessionLog session_log = 7 {Status status = 1, START = 1}
//     Summary    repeated Value value = 1 {string tag = 1; float simple_value = 2;
//                TensorProto tensor = 8; SummaryMetadata metadata = 9 {PluginData plugin_data = 1 {string name = 1}}}
//     Tensor     DataType dtype = 1, DT_STRING = 7; Shape tensor_shape = 2 {Dim dim = 2 {int64 size = 1}};
//                bytes string_val = 8
//
// A field is its number << 3 | type (0: varint, 1: 8 bytes, 2: length and bytes, 5: 4 bytes), then its value. The first
// event has the file_version "brain.Event:2". A folder has a file for each start of the run; its second event is a
// SessionLog START, by which TensorBoard drops the steps of earlier files that this start does again.
#pragma once
#include "../base/base.h"

// A file that is being written. All zero: none, and the functions below do nothing.
typedef struct {
    FILE* file;
    char* path;
} EventFile;

// Makes `folder` and creates a file there for a start whose first update is `first_step`. Its name sorts behind those
// of all event files there, since TensorBoard reads them in the order of their names.
bool events_open(EventFile* e, const char* folder, int first_step, Error* err);

// Write one event and flush it, so that a TensorBoard that watches the folder sees it. A failure to write ends the
// program, as of the other logs. Values that are not finite are left out.
void events_scalars(EventFile* e, int step, int n, const char* const* tags, const double* values);
void events_text(EventFile* e, int step, const char* tag, const char* text, size_t size);

bool events_close(EventFile* e, Error* err);
