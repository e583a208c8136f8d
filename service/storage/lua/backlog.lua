-- Part of the scripts that append, commit or measure: bytes of the records that are not learned yet.
--
-- They count from the last moment on at which all had been learned. What was appended by a version without the field
-- `backlog_bytes` of meta, or is learned again by a restore, does not count.
local function bytes_of_backlog(stored, appended, applied_number)
  return tonumber(appended) > tonumber(applied_number) and tonumber(stored or 0) or 0
end
