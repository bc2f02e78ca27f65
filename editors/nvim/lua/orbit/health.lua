-- :checkhealth orbit
local M = {}

---@param command string[]
---@param words string[]
---@param folder string?
local function ask(command, words, folder)
  local asked = vim.list_extend({}, command)
  if asked[#asked] == 'serve' then
    asked[#asked] = nil
  end
  vim.list_extend(asked, words)
  local ok, done = pcall(function()
    return vim.system(asked, { text = true, cwd = folder, env = vim.lsp.config.orbit.cmd_env, timeout = 30000 }):wait()
  end)
  return ok and done or { code = -1, stdout = '', stderr = ok and '' or tostring(done) }
end

---What works in a folder, by the settings of its server.
---@param command string[]
---@param folder string?
---@param options table?
local function doctor(command, folder, options)
  local health = vim.health
  health.start(('orbit: what works in %s (orbit-lsp doctor)'):format(folder or vim.fn.getcwd()))
  local settings = next(options or {}) and { '--settings', vim.json.encode(options) } or {}
  local answer = ask(command, vim.list_extend({ 'doctor' }, settings), folder)
  local text = vim.trim((answer.stdout or '') .. '\n' .. (answer.stderr or ''))
  for line in vim.gsplit(text, '\n') do
    if line:find('✓', 1, true) then
      health.ok(vim.trim(line:gsub('✓', '', 1)))
    elseif line:find('✗', 1, true) then
      health.warn(vim.trim(line:gsub('✗', '', 1)))
    elseif line ~= '' then
      health.info(line)
    end
  end
end

---@param client vim.lsp.Client
local function trusted(client)
  local answer = client:request_sync('workspace/executeCommand', { command = 'orbit.info' }, 2000)
  local settings = answer and answer.result and answer.result.settings or {}
  return settings.trusted and 'yes' or 'no'
end

function M.check()
  local health, server = vim.health, require('orbit.server')
  health.start('orbit: Neovim')
  if vim.fn.has('nvim-0.11') == 1 then
    health.ok('Neovim ' .. tostring(vim.version()))
  else
    health.error('Neovim 0.11 or newer is needed')
    return
  end
  if not vim.lsp.is_enabled('orbit') then
    health.error("the server is not enabled", "vim.lsp.enable('orbit')")
  end

  health.start('orbit: server')
  local command = server.command()
  if not command then
    health.info('its connection is made by a function of your configuration')
  elseif vim.fn.executable(command[1]) == 0 then
    health.error(('there is no program %s'):format(command[1]), {
      'install orbit-lsp, or put it on PATH',
      "vim.lsp.config('orbit', { cmd = { '/path/to/orbit-lsp' } })",
    })
  else
    health.ok('found: ' .. vim.fn.exepath(command[1]))
    local answer = ask(command, { '--version' })
    local version = vim.version.parse(answer.stdout or '', { strict = false })
    if answer.code ~= 0 or not version then
      health.error('it does not say its version: ' .. vim.trim((answer.stdout or '') .. (answer.stderr or '')))
    elseif vim.version.lt(version, server.OLDEST) then
      health.warn(('version %s is older than %s'):format(version, server.OLDEST), 'update orbit-lsp')
    else
      health.ok('version ' .. tostring(version))
    end
  end

  health.start('orbit: clients')
  local clients = vim.lsp.get_clients({ name = 'orbit' })
  if #clients == 0 then
    health.info('none: open a .cu, .cuh or .py file')
  end
  for _, client in ipairs(clients) do
    local buffers = vim.tbl_map(function(buf)
      return vim.fn.fnamemodify(vim.api.nvim_buf_get_name(buf), ':t')
    end, vim.tbl_keys(client.attached_buffers))
    table.sort(buffers)
    health.ok(
      ('orbit-lsp %s, root %s, positions in %s, trusted: %s, files: %s'):format(
        client.server_info and client.server_info.version or '?',
        client.root_dir or '(none)',
        client.offset_encoding,
        trusted(client),
        table.concat(buffers, ', ')
      )
    )
  end
  health.info('log: ' .. server.log_path())

  if command and vim.fn.executable(command[1]) == 1 then
    if #clients == 0 then
      doctor(command)
    end
    for _, client in ipairs(clients) do
      doctor(command, client.root_dir, client.config.init_options)
    end
  end
end

return M
