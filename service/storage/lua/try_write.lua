-- Tries a write that changes nothing: what refuses it (a full disk, missing replicas, lack of memory, a read-only
-- replica, missing rights) refuses appends too.
-- KEYS: 1 a key that does not exist
-- RETURNS: 1, or the server's error
redis.call('XADD', KEYS[1], 'NOMKSTREAM', '*', 'e', '')
return 1
