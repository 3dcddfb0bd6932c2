// A C interface to the proto splitter's Merger inside the tensorflow-cpu wheel (Linux x86-64).
//
// The wheel has no Python name for it, but libtensorflow_framework.so.2 exports the symbols and the wheel carries the
// headers. Every function answers with a code (0: fine; an absl::StatusCode; -1: the request itself makes no sense) and
// hands out buffers that the caller gives back to referee_free.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/dynamic_message.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/message.h"
#include "tensorflow/tools/proto_splitter/chunk.pb.h"
#include "tensorflow/tools/proto_splitter/merge.h"

namespace util {
uint64_t Fingerprint64(const char* text, size_t length);  // FarmHash
}

namespace {

namespace pb = google::protobuf;
using tensorflow::tools::proto_splitter::Merger;
using MessagePtr = std::unique_ptr<pb::Message>;

extern "C" struct Bytes {
  char* data;
  size_t size;
};

std::string AsString(const Bytes& bytes) { return std::string(bytes.data, bytes.size); }

// What one call is about: where message types come from, and where the answer goes.
class Call {
 public:
  Call(Bytes* result, Bytes* complaint) : result_(result), complaint_(complaint) {}

  // Types come from these descriptors, or, if there are none, from those compiled into the library.
  bool Learn(const Bytes& descriptors) {
    if (descriptors.size == 0) return true;
    pb::FileDescriptorSet set;
    if (!set.ParseFromString(AsString(descriptors))) return Complain("bad FileDescriptorSet");
    own_pool_ = std::make_unique<pb::DescriptorPool>();
    for (const auto& file : set.file()) {
      if (own_pool_->BuildFile(file) == nullptr) return Complain("bad file " + file.name());
    }
    own_factory_ = std::make_unique<pb::DynamicMessageFactory>(own_pool_.get());
    return true;
  }

  // An instance with this content; null (and a complaint) if there is no such type or it cannot be parsed.
  MessagePtr Make(const Bytes& type, const Bytes& content) {
    const pb::DescriptorPool* pool = own_pool_ ? own_pool_.get() : pb::DescriptorPool::generated_pool();
    pb::MessageFactory* factory = own_factory_ ? own_factory_.get() : pb::MessageFactory::generated_factory();
    const pb::Descriptor* descriptor = pool->FindMessageTypeByName(AsString(type));
    const pb::Message* prototype = descriptor ? factory->GetPrototype(descriptor) : nullptr;
    if (prototype == nullptr) {
      Complain("no type " + AsString(type));
      return nullptr;
    }
    MessagePtr made(prototype->New());
    if (!made->ParsePartialFromString(AsString(content))) {
      Complain("these bytes are no " + AsString(type));
      return nullptr;
    }
    return made;
  }

  // Hand out the message as it is now, whether or not the Merger was content.
  int Finish(const absl::Status& status, const pb::Message& message) {
    std::string text;
    {
      pb::io::StringOutputStream stream(&text);
      pb::io::CodedOutputStream coded(&stream);
      coded.SetSerializationDeterministic(true);
      message.SerializePartialToCodedStream(&coded);
    }
    HandOut(text, result_);
    if (!status.ok()) HandOut(std::string(status.message()), complaint_);
    return static_cast<int>(status.code());
  }

  bool Complain(const std::string& text) {
    HandOut(text, complaint_);
    return false;
  }

 private:
  static void HandOut(const std::string& text, Bytes* to) {
    to->data = static_cast<char*>(malloc(text.size() + 1));
    memcpy(to->data, text.data(), text.size());
    to->size = text.size();
  }

  Bytes* result_;
  Bytes* complaint_;
  std::unique_ptr<pb::DescriptorPool> own_pool_;
  std::unique_ptr<pb::DynamicMessageFactory> own_factory_;  // last: it must go before the pool
};

}  // namespace

extern "C" {

void referee_free(Bytes bytes) { free(bytes.data); }

uint64_t referee_fingerprint64(Bytes text) { return util::Fingerprint64(text.data, text.size); }

// Merger::Read of the files with this prefix.
int referee_read(Bytes prefix, Bytes type, Bytes descriptors, Bytes start, Bytes* result, Bytes* complaint) {
  Call call(result, complaint);
  if (!call.Learn(descriptors)) return -1;
  MessagePtr message = call.Make(type, start);
  if (!message) return -1;
  return call.Finish(Merger::Read(AsString(prefix), message.get()), *message);
}

// Merger::ReadChunkedFromString of the content of a .cpb file.
int referee_read_string(Bytes content, Bytes type, Bytes descriptors, Bytes start, Bytes* result, Bytes* complaint) {
  Call call(result, complaint);
  if (!call.Learn(descriptors)) return -1;
  MessagePtr message = call.Make(type, start);
  if (!message) return -1;
  std::string_view view(content.data, content.size);
  return call.Finish(Merger::ReadChunkedFromString(view, message.get()), *message);
}

// Merger::ReadPartial: these files, read with this ChunkMetadata in place of theirs.
int referee_read_partial(Bytes prefix, Bytes metadata, Bytes type, Bytes descriptors, Bytes* result,
                         Bytes* complaint) {
  Call call(result, complaint);
  tensorflow::proto_splitter::ChunkMetadata chunks;
  if (!chunks.ParseFromString(AsString(metadata))) return call.Complain("bad ChunkMetadata") - 1;
  if (!call.Learn(descriptors)) return -1;
  MessagePtr message = call.Make(type, {});
  if (!message) return -1;
  return call.Finish(Merger::ReadPartial(AsString(prefix), chunks, message.get()), *message);
}

// Merger::Merge of chunks in memory: `pieces` holds the type and the content of each, by turns.
int referee_merge(Bytes tree, Bytes type, Bytes descriptors, const Bytes* pieces, size_t count, Bytes* result,
                  Bytes* complaint) {
  Call call(result, complaint);
  tensorflow::proto_splitter::ChunkedMessage chunked;
  if (!chunked.ParseFromString(AsString(tree))) return call.Complain("bad ChunkedMessage") - 1;
  if (!call.Learn(descriptors)) return -1;
  std::vector<MessagePtr> chunks;
  for (size_t number = 0; number < count; ++number) {
    chunks.push_back(call.Make(pieces[2 * number], pieces[2 * number + 1]));
    if (!chunks.back()) return -1;
  }
  MessagePtr message = call.Make(type, {});
  if (!message) return -1;
  return call.Finish(Merger::Merge(chunks, chunked, message.get()), *message);
}

}  // extern "C"
