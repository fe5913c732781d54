# SPDX-License-Identifier: Apache-2.0
# One unary call with the bytes of standard input: address, path, count. Prints the answers in hex.
require 'grpc'

raw = proc { |bytes| bytes }
stub = GRPC::ClientStub.new(ARGV[0], :this_channel_is_insecure)
body = $stdin.binmode.read
Integer(ARGV[2]).times do
  puts stub.request_response(ARGV[1], body, raw, raw, deadline: Time.now + 10).unpack1('H*')
end
