-- Runs what else scripts need and leaves nothing: a key that is not declared, the libraries, writes that no single
-- command undoes.
-- KEYS: 1 a key that does not exist
-- ARGV: 1 another, with the same hash tag
-- RETURNS: {} or {what is lacking, the reason, ...}
local refused = {}
local function check(name, ...)
  local reply = redis.pcall(name, ...)
  if type(reply) == 'table' and reply.err then
    refused[#refused + 1] = name
    refused[#refused + 1] = reply.err
  end
end
local function check_library(name, is_there)
  if is_there then return end
  refused[#refused + 1] = name
  refused[#refused + 1] = 'scripts do not have it'
end
check('EXISTS', ARGV[1])
check('DEL', KEYS[1])
if #refused == 0 then
  check('HSETNX', KEYS[1], 'field', '')
  redis.call('DEL', KEYS[1])
  check('LPUSH', KEYS[1], '')
  check('RPUSH', KEYS[1], '')
  redis.call('DEL', KEYS[1])
  check('SADD', KEYS[1], '')
  redis.call('DEL', KEYS[1])
end
check_library('struct', struct and struct.pack and struct.unpack)
check_library('cmsgpack', cmsgpack and cmsgpack.unpack_limit)
check_library('redis.sha1hex', redis.sha1hex)
return refused
