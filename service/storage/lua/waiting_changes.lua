-- Part of the scripts that look up or change pending predictions. After: clock, waiting
-- Strings rather than tables, which every call would have to make.
local STAGES = 'uxyXYi0123abnlsSt'
local KINDS  = 'uggggiiiiiccccgic'
local HEAVY  = 'XY23' -- those with a weight
local SOFT   = 'sS' -- those with a label between 0 and 1, and a weight

local function stage(value) return (string.find(STAGES, string.sub(value, 1, 1), 1, true)) end
local function kind_of(value) return string.sub(KINDS, stage(value), stage(value)) end
local function is_heavy(value) return string.find(HEAVY, string.sub(value, 1, 1), 1, true) end
local function is_soft(value) return string.find(SOFT, string.sub(value, 1, 1), 1, true) end
local function since(value) return (struct.unpack('<I4', value, 2)) end
local function list_of(value) return list_for(kind_of(value), since(value)) end
local function is_due(value) return since(value) + 1 + wait_of[kind_of(value)] <= now end

local changes, listed = {}, {} -- field of the index -> what to add; list -> ids to add
local function change(field, by) changes[field] = (changes[field] or 0) + by end
local function count(what, by) change('#' .. what, by or 1) end

local function by_hash(ids)
  local groups = {}
  for _, id in ipairs(ids) do
    local hash = hash_of(id)
    local group = groups[hash] or {}
    groups[hash] = group
    group[#group + 1] = id
  end
  return groups
end

-- How many of a kind there are more, and of how many bytes in all.
local function weigh(kind, number, bytes)
  change('=' .. kind, number)
  change('#bytes', bytes)
end
-- Goes before any put: a server at its memory limit refuses a script that has only added so far.
local function take(id, value)
  redis.call('HDEL', hash_of(id), id)
  weigh(kind_of(value), -1, -bytes_of(#value))
end
-- Without listing it: where it takes the place of one that is due at the same time.
local function put_back(id, value)
  redis.call('HSET', hash_of(id), id, value)
  weigh(kind_of(value), 1, bytes_of(#value))
end
local function list(id, value)
  local name = list_of(value)
  listed[name] = listed[name] or {}
  table.insert(listed[name], id)
end
local function put(id, value)
  put_back(id, value)
  list(id, value)
end
-- In place of one that has been taken and was due by its list.
local function put_after(former, id, value)
  put_back(id, value)
  local kind = kind_of(value)
  local at = comes_at(kind, since(value))
  if at < comes_at(kind_of(former), since(former)) then
    list(id, value)
  else
    change(kind .. at, 0) -- so that the index shows since when impressions are open
  end
end

local function add_to_list(name, ids)
  push_to_list(name, ids)
  change(name, #ids * LISTED_BYTES)
  change('#bytes', #ids * LISTED_BYTES)
end

local function settle_index()
  for name, ids in pairs(listed) do add_to_list(name, ids) end
  local fields, changed = {}, {}
  for field in pairs(changes) do fields[#fields + 1] = field end
  if #fields == 0 then return end
  local old = redis.call('HMGET', KEYS[3], unpack(fields))
  redis.call('HDEL', KEYS[3], '') -- of what is not there: a script that has only counted is refused no memory then
  for k, field in ipairs(fields) do
    changed[#changed + 1] = field
    changed[#changed + 1] = tonumber(old[k] or 0) + changes[field]
  end
  redis.call('HSET', KEYS[3], unpack(changed))
end
-- Writes the lists, the index and the time; to be called once, at the end.
local function settle()
  settle_index()
  settle_time()
end

-- id -> value of those that are there.
local function find(ids)
  local found = {}
  for hash, some in pairs(by_hash(ids)) do
    for start = 1, #some, CHUNK do
      local stop = math.min(start + CHUNK - 1, #some)
      local values = redis.call('HMGET', hash, unpack(some, start, stop))
      for k = start, stop do found[some[k]] = values[k - start + 1] or nil end
    end
  end
  return found
end

local function without_label(value)
  local weight = is_heavy(value) and BODY or is_soft(value) and BODY + 8
  if not weight then return value, WEIGHT_1 end
  return string.sub(value, 1, BODY - 1) .. string.sub(value, weight + 8), string.sub(value, weight, weight + 7)
end

