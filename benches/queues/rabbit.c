// Messages through a durable queue of RabbitMQ: published persistent with confirms, consumed and acknowledged.
//   rabbit PORT KIND CONNECTIONS BATCH BYTES SECONDS      KIND: quorum or classic
// A sender publishes BATCH messages and waits until all are confirmed; a receiver acknowledges every BATCH messages with
// one frame, which the broker does not answer. Senders stop while the receivers are four batches each behind, as those of
// `highwater bench queue` do. Prints messages acknowledged, that a second, and the driver's own CPU in microseconds a message.
#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int port, batch, bytes;
static long ahead;
static atomic_int over;
static atomic_long sent_all, done;

static void check(int ok, const char *what) {
  if (!ok) { fprintf(stderr, "%s failed\n", what); exit(1); }
}

static amqp_connection_state_t open_connection(void) {
  amqp_connection_state_t connection = amqp_new_connection();
  amqp_socket_t *socket = amqp_tcp_socket_new(connection);
  check(socket && amqp_socket_open(socket, "127.0.0.1", port) == 0, "connect");
  amqp_rpc_reply_t reply = amqp_login(connection, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest");
  check(reply.reply_type == AMQP_RESPONSE_NORMAL, "login");
  amqp_channel_open(connection, 1);
  check(amqp_get_rpc_reply(connection).reply_type == AMQP_RESPONSE_NORMAL, "channel");
  return connection;
}

static void *send_all(void *unused) {
  amqp_connection_state_t connection = open_connection();
  amqp_confirm_select(connection, 1);
  char *body = malloc(bytes);
  memset(body, 'x', bytes);
  amqp_bytes_t content = {.len = bytes, .bytes = body};
  amqp_basic_properties_t properties = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG, .delivery_mode = 2};
  uint64_t sent = 0, confirmed = 0;
  while (!atomic_load(&over)) {
    struct timespec moment = {0, 200000};
    while (atomic_load(&sent_all) - atomic_load(&done) >= ahead) nanosleep(&moment, 0);
    atomic_fetch_add(&sent_all, batch);
    for (int i = 0; i < batch; i++, sent++)
      check(amqp_basic_publish(connection, 1, amqp_empty_bytes, amqp_cstring_bytes("bench"), 0, 0, &properties, content) == 0,
            "publish");
    while (confirmed < sent) {
      amqp_frame_t frame;
      check(amqp_simple_wait_frame(connection, &frame) == 0, "wait");
      if (frame.frame_type != AMQP_FRAME_METHOD) continue;
      check(frame.payload.method.id == AMQP_BASIC_ACK_METHOD, "confirm");
      amqp_basic_ack_t *ack = frame.payload.method.decoded;
      // Confirms may come out of order; a multiple one says that all before are there.
      if (ack->multiple) confirmed = ack->delivery_tag > confirmed ? ack->delivery_tag : confirmed;
      else confirmed++;
      amqp_maybe_release_buffers(connection);
    }
  }
  return unused;
}

static void *receive_all(void *unused) {
  amqp_connection_state_t connection = open_connection();
  amqp_basic_qos(connection, 1, 0, batch * 2, 0);
  amqp_basic_consume(connection, 1, amqp_cstring_bytes("bench"), amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
  check(amqp_get_rpc_reply(connection).reply_type == AMQP_RESPONSE_NORMAL, "consume");
  int held = 0;
  while (!atomic_load(&over)) {
    amqp_envelope_t envelope;
    struct timeval second = {1, 0};
    amqp_maybe_release_buffers(connection);
    amqp_rpc_reply_t reply = amqp_consume_message(connection, &envelope, &second, 0);
    if (reply.reply_type != AMQP_RESPONSE_NORMAL) continue;
    if (++held == batch) {
      check(amqp_basic_ack(connection, 1, envelope.delivery_tag, 1) == 0, "ack");
      atomic_fetch_add(&done, held);
      held = 0;
    }
    amqp_destroy_envelope(&envelope);
  }
  return unused;
}

int main(int count, char **arguments) {
  check(count == 7, "rabbit PORT KIND CONNECTIONS BATCH BYTES SECONDS:");
  port = atoi(arguments[1]);
  int connections = atoi(arguments[3]), seconds = atoi(arguments[6]);
  batch = atoi(arguments[4]), bytes = atoi(arguments[5]);
  ahead = 4L * connections * batch;
  amqp_connection_state_t connection = open_connection();
  amqp_queue_delete(connection, 1, amqp_cstring_bytes("bench"), 0, 0);
  amqp_table_entry_t kind = {.key = amqp_cstring_bytes("x-queue-type"),
                             .value = {.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_cstring_bytes(arguments[2])}};
  amqp_table_t table = {.num_entries = 1, .entries = &kind};
  amqp_queue_declare(connection, 1, amqp_cstring_bytes("bench"), 0, 1, 0, 0, table);
  check(amqp_get_rpc_reply(connection).reply_type == AMQP_RESPONSE_NORMAL, "declare");
  pthread_t threads[2 * connections];
  for (int i = 0; i < connections; i++) {
    pthread_create(&threads[2 * i], 0, send_all, 0);
    pthread_create(&threads[2 * i + 1], 0, receive_all, 0);
  }
  struct timespec wait = {1, 0}, length = {seconds, 0}, start, end;
  nanosleep(&wait, 0);
  long before = atomic_load(&done);
  clock_gettime(CLOCK_MONOTONIC, &start);
  clock_t used = clock();
  nanosleep(&length, 0);
  long cycles = atomic_load(&done) - before;
  used = clock() - used;
  clock_gettime(CLOCK_MONOTONIC, &end);
  double took = (end.tv_sec - start.tv_sec) + (end.tv_nsec - start.tv_nsec) / 1e9;
  printf("%ld %.0f %.1f\n", cycles, cycles / took, used * 1e6 / CLOCKS_PER_SEC / (cycles + 1));
  return 0;
}
