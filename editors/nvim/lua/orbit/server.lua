-- The server's process: not there, too old, ended by itself.
local M = {}

M.OLDEST = '0.1.0'

---Waits before each restart, in milliseconds.
M.delays = { 500, 2000, 8000 }
---A server that lived this long, in milliseconds, has its restarts counted anew.
M.well = 60000

local began = {} ---@type table<integer, number> client -> milliseconds
local failures = {} ---@type table<string, integer> root -> in a row
local wanted = {} ---@type table<integer, true> clients that are to start again at once
local begun = {} ---@type table<integer, true> buffers
local said = {} ---@type table<string, true>

local function say(text, level)
  if not said[text] then
    said[text] = true
    require('orbit.message').say(text, level)
  end
end

---@return string
function M.log_path()
  return vim.lsp.log.get_filename and vim.lsp.log.get_filename() or vim.lsp.get_log_path()
end

---The program as configured; nil where the configuration makes its own connection.
---@return string[]?
function M.command()
  local config = vim.lsp.config.orbit
  local command = config and config.cmd
  return type(command) == 'table' and command or nil
end

---Neovim says nothing where a server is not installed. Python files without Triton are not ours.
---@param buf integer
function M.say_if_missing(buf)
  local command = M.command()
  if not command or vim.fn.executable(command[1]) == 1 or not vim.lsp.is_enabled('orbit') then
    return
  end
  local text = table.concat(vim.api.nvim_buf_get_lines(buf, 0, 500, false), '\n')
  if vim.bo[buf].filetype == 'cuda' or text:find('triton', 1, true) then
    say(
      ('orbit: there is no program %s. Install orbit-lsp, or say where it is: '):format(command[1])
        .. "vim.lsp.config('orbit', { cmd = { '/path/to/orbit-lsp' } })",
      vim.log.levels.WARN
    )
  end
end

---@param client vim.lsp.Client
function M.say_if_old(client)
  began[client.id] = began[client.id] or vim.uv.now()
  local version = client.server_info and client.server_info.version
  if version and vim.version.lt(version, M.OLDEST) then
    say(
      ('orbit: orbit-lsp %s is older than %s, which this plug-in is for: update it'):format(version, M.OLDEST),
      vim.log.levels.WARN
    )
  end
end

---Before the servers that |vim.lsp.enable()| starts: Neovim joins hovers in the order in which servers were started.
---@param buf integer
function M.start_first(buf)
  local command = M.command()
  local config = vim.lsp.is_enabled('orbit') and vim.lsp.config.orbit
  if
    not config
    or type(config.root_dir) ~= 'function'
    or vim.bo[buf].buftype ~= ''
    or not vim.list_contains(config.filetypes or {}, vim.bo[buf].filetype)
    or (command and vim.fn.executable(command[1]) == 0)
  then
    return
  end
  config.root_dir(buf, function(root)
    vim.lsp.start(vim.tbl_extend('force', config, { root_dir = root }), { bufnr = buf, reuse_client = config.reuse_client })
    begun[buf] = true
  end)
  vim.schedule(function()
    begun[buf] = nil
  end)
end

---Whether it was started for the buffer in this turn of the loop, and may have ended again.
---@param buf integer
function M.has_begun(buf)
  return begun[buf] == true
end

local function start(config, buffers)
  for _, buf in ipairs(buffers) do
    if vim.api.nvim_buf_is_loaded(buf) then
      vim.lsp.start(config, { bufnr = buf })
    end
  end
end

---on_exit of the client: called before Neovim forgets it, outside the main loop.
---@param code integer
---@param signal integer
---@param id integer
function M.ended(code, signal, id)
  local client = vim.lsp.get_client_by_id(id)
  if not client then
    return
  end
  local buffers, config = vim.tbl_keys(client.attached_buffers), client.config
  local root = client.root_dir or ''
  local life = vim.uv.now() - (began[id] or vim.uv.now())
  local again = wanted[id]
  local fault = code ~= 0 or (signal ~= 0 and signal ~= 15) or not client.initialized
  began[id], wanted[id] = nil, nil
  vim.schedule(function()
    if vim.v.exiting ~= vim.NIL or not vim.lsp.is_enabled('orbit') then
      return
    end
    if again or not fault then
      failures[root] = nil
      if again then
        start(config, buffers)
      end
      return
    end
    failures[root] = (life > M.well and 0 or failures[root] or 0) + 1
    local delay = M.delays[failures[root]]
    if delay then
      vim.defer_fn(function()
        start(config, buffers)
      end, delay)
      return
    end
    failures[root] = nil
    require('orbit.message').say(
      ('orbit: the server ended %d times in a row (exit code %d, signal %d). '):format(#M.delays + 1, code, signal)
        .. ('Its last words: %s (:Orbit log). :checkhealth orbit, then :Orbit restart'):format(M.log_path()),
      vim.log.levels.ERROR
    )
  end)
end

---Stop the servers and start them again; start one where none runs.
function M.restart()
  local clients = vim.lsp.get_clients({ name = 'orbit' })
  if #clients == 0 then
    vim.lsp.enable('orbit')
  end
  for _, client in ipairs(clients) do
    wanted[client.id] = true
    client:stop()
    vim.defer_fn(function()
      if wanted[client.id] then
        client:stop(true)
      end
    end, 5000)
  end
end

return M
