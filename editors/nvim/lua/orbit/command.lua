-- :Orbit
local M = {}

---@class orbit.Subcommand
---@field says string what it does, for the picker
---@field command? string the server's command
---@field about? 'kernel'|'file'|'all' the kernel at the cursor, this file, or every server; default: neither
---@field words? fun(words: string[]): table? what words after the subcommand add to the argument
---@field complete? fun(): string[] what those words may be
---@field answer? fun(result: any, target: table?) what is done with the server's answer
---@field here? fun() done in Neovim alone

local function tell(text, level)
  require('orbit.message').say('orbit: ' .. text, level)
end

---@return vim.lsp.Client?
local function client_here()
  return vim.lsp.get_clients({ name = 'orbit', bufnr = 0 })[1] or vim.lsp.get_clients({ name = 'orbit' })[1]
end

local function gpu(words)
  return words[1] and { gpu = words[1] }
end

---The GPUs that the server knows.
local function gpus()
  local client = client_here()
  local said = client and client:request_sync('workspace/executeCommand', { command = 'orbit.info' }, 1000)
  local info = said and said.result or {}
  return vim.tbl_values(info.gpus or vim.tbl_get(info, 'settings', 'gpus') or {})
end

local function show_info(result)
  vim.cmd('botright new')
  vim.bo.buftype, vim.bo.bufhidden, vim.bo.swapfile, vim.bo.filetype = 'nofile', 'wipe', false, 'lua'
  vim.api.nvim_buf_set_lines(0, 0, -1, false, vim.split(vim.inspect(result), '\n'))
  vim.bo.modified = false
end

---A new one is one line here.
---@type table<string, orbit.Subcommand>
M.subcommands = {
  run = {
    says = 'Run the kernel at the cursor',
    command = 'orbit.run', about = 'kernel',
    words = function(words) return words[1] == 'program' and { through = 'program' } or nil end,
    complete = function() return { 'program' } end,
  },
  apart = { says = 'Run code that is not yours, in a container of its own', command = 'orbit.runRestricted', about = 'kernel' },
  check = { says = 'Check memory with compute-sanitizer', command = 'orbit.checkMemory', about = 'kernel' },
  test = { says = 'Test and time ModelNew or custom_kernel against its reference', command = 'orbit.test', about = 'file' },
  debug = {
    says = 'Debug the Triton kernel at the cursor, without a GPU',
    command = 'orbit.debug', about = 'kernel',
    words = function(words) return words[1] and { what = words[1] } end,
    complete = function() return { 'wrong' } end,
  },
  compile = { says = 'Compile the file', command = 'orbit.compile', about = 'file' },
  draft = { says = 'Write a launch spec above the kernel', command = 'orbit.draft', about = 'kernel' },
  profile = {
    says = 'Profile the kernel at the cursor',
    command = 'orbit.profile', about = 'kernel',
    words = function(words)
      local more = {}
      for _, word in ipairs(words) do
        more[word == 'full' and 'detail' or 'through'] = word
      end
      return more
    end,
    complete = function() return { 'full', 'program' } end,
  },
  report = {
    says = 'Open its last result in a browser',
    command = 'orbit.openReport', about = 'kernel',
    words = function(words) return words[1] and { what = words[1] } end,
    complete = function() return { 'nsight', 'profile', 'run' } end,
  },
  why = { says = 'Show why its last run failed', command = 'orbit.showFailure', about = 'kernel' },
  ir = {
    says = 'Open the compiler output of its last profile',
    command = 'orbit.openIr', about = 'kernel',
    words = function(words) return words[1] and { kind = words[1] } end,
    complete = function() return { 'llir', 'ptx', 'sass', 'ttgir', 'ttir' } end,
  },
  disassemble = {
    says = 'Show SASS, PTX or IR, without a run',
    command = 'orbit.disassemble', about = 'kernel',
    words = function(words) return words[1] and { kind = words[1] } end,
    complete = function() return { 'llir', 'ptx', 'sass', 'ttgir', 'ttir' } end,
  },
  compare = {
    says = 'Compare it with another version, file, kernel or GPU',
    command = 'orbit.compareWith', about = 'kernel',
    words = function(words)
      local one = words[1]
      return one and (one == 'report' and { show = one } or { with = one })
    end,
    complete = function() return { 'file:', 'gpu:', 'kernel:', 'last', 'report', 'revision:HEAD' } end,
  },
  history = { says = 'Open all its runs in a browser', command = 'orbit.history', about = 'kernel' },
  live = {
    says = 'Turn Live on or off: run it again at each save',
    command = 'orbit.live', about = 'kernel',
    answer = function(on, target) tell(('live is %s for %s'):format(on and 'on' or 'off', target.kernel)) end,
  },
  problems = { says = 'List the errors and warnings of compilers and runs', here = function() require('orbit.problems').list() end },
  export = {
    says = 'Export all its runs as JSON, CSV or Markdown',
    command = 'orbit.export', about = 'kernel',
    words = function(words) return words[1] and { kind = words[1] } end,
    complete = function() return { 'csv', 'json', 'md' } end,
  },
  cancel = { says = 'Cancel all runs', command = 'orbit.cancel', about = 'all' },
  output = { says = 'Show what runs have printed', here = function() require('orbit.output').open() end },
  runOnAll = {
    says = 'Run it on several GPUs on Modal',
    command = 'orbit.runOnAll', about = 'kernel', complete = gpus,
    words = function(words) return words[1] and { gpus = words } end,
  },
  gpu = { says = 'Choose the GPU for the next runs', command = 'orbit.chooseGpu', words = gpu, complete = gpus },
  keep = { says = 'Keep a rented GPU until it is released', command = 'orbit.keepWarm', words = gpu, complete = gpus },
  release = { says = 'End rented GPUs now', command = 'orbit.release', words = gpu, complete = gpus },
  sessions = { says = 'Show which rented GPUs are warm', command = 'orbit.sessions' },
  info = { says = 'Show versions, settings and capabilities', command = 'orbit.info', answer = show_info },
  log = { says = "Open Neovim's LSP log", here = function() vim.cmd.tabedit(vim.fn.fnameescape(require('orbit.server').log_path())) end },
  restart = { says = 'Restart the server', here = function() require('orbit.server').restart() end },
}

---@param client vim.lsp.Client
---@param one orbit.Subcommand
---@param argument table?
local function send(client, one, argument)
  local provider = client.server_capabilities.executeCommandProvider
  if not vim.list_contains(provider and provider.commands or {}, one.command) then
    local version = client.server_info and client.server_info.version or 'there'
    tell(('orbit-lsp %s has no %s: update it'):format(version, one.command), vim.log.levels.WARN)
    return
  end
  local params = { command = one.command, arguments = argument and { argument } or nil }
  client:request('workspace/executeCommand', params, function(fault, result)
    if fault then
      tell(fault.message, vim.log.levels.ERROR)
    elseif one.answer then
      one.answer(result ~= vim.NIL and result or nil, argument) -- Neovim 0.12 makes nil of false itself
    end
  end)
end

---{uri, kernel} of the kernel at the cursor, as the server's code actions there name it.
---@param client vim.lsp.Client
---@param command string actions with this command go first: a helper's names the kernel that calls it
---@param found fun(target: table)
local function kernel_at_cursor(client, command, found)
  local params = vim.lsp.util.make_range_params(0, client.offset_encoding)
  params.context = { diagnostics = {} }
  client:request('textDocument/codeAction', params, function(_, actions)
    local targets = {}
    for _, action in ipairs(actions or {}) do
      local argument = type(action.command) == 'table' and (action.command.arguments or {})[1]
      if type(argument) == 'table' and argument.kernel then
        local at = action.command.command == command and 'same' or 'other'
        targets[at] = targets[at] or { uri = argument.uri, kernel = argument.kernel }
      end
    end
    local target = targets.same or targets.other
    if target then
      found(target)
    else
      tell('there is no kernel at the cursor', vim.log.levels.WARN)
    end
  end, 0)
end

---Whether the server looks after a buffer: one that was just opened gets a moment.
---@param client vim.lsp.Client
---@param buf integer
local function attached(client, buf)
  return vim.wait(vim.tbl_contains(client.config.filetypes or {}, vim.bo[buf].filetype) and 1000 or 0, function()
    return client.attached_buffers[buf] ~= nil
  end, 10)
end

---What the picker of |:Orbit| offers, most wanted first.
local ORDER = {
  'run', 'profile', 'report', 'output', 'why', 'problems', 'compare', 'history', 'draft', 'live', 'check', 'debug',
  'disassemble', 'ir', 'export', 'test', 'cancel', 'gpu', 'runOnAll', 'sessions', 'release', 'keep', 'apart', 'compile', 'info', 'log',
  'restart',
}

local function pick()
  vim.ui.select(ORDER, {
    prompt = 'Orbit',
    kind = 'orbit',
    format_item = function(name)
      return ('%s (%s)'):format(M.subcommands[name].says, name)
    end,
  }, function(name)
    if name then
      M.run({ name })
    end
  end)
end

---@param words string[] the subcommand and what follows; without any, the author is asked
function M.run(words)
  if #words == 0 then
    pick()
    return
  end
  local name, rest = words[1], vim.list_slice(words, 2)
  local one = M.subcommands[name]
  if not one then
    tell(('there is no :Orbit %s; :Orbit alone shows what there is'):format(name), vim.log.levels.ERROR)
    return
  end
  if one.here then
    one.here()
    return
  end
  local client = client_here()
  if not client then
    tell('no server runs; :checkhealth orbit says why', vim.log.levels.WARN)
    return
  end
  local more = one.words and one.words(rest)
  if one.about == 'all' then
    for _, each in ipairs(vim.lsp.get_clients({ name = 'orbit' })) do
      send(each, one, more)
    end
  elseif one.about == nil then
    send(client, one, more)
  elseif not attached(client, vim.api.nvim_get_current_buf()) then
    tell('the server does not look after this buffer; it takes .cu, .cuh and .py', vim.log.levels.WARN)
  elseif one.about == 'file' then
    send(client, one, { uri = vim.uri_from_bufnr(0) })
  else
    kernel_at_cursor(client, one.command, function(target)
      send(client, one, vim.tbl_extend('force', target, more or {}))
    end)
  end
end

---@param start string
---@param line string
---@return string[]
function M.complete(start, line)
  local name = line:match('Orbit%s+(%S+)%s')
  local one = M.subcommands[name]
  local choices = name and (one and one.complete and one.complete() or {}) or vim.tbl_keys(M.subcommands)
  choices = vim.tbl_filter(function(choice)
    return vim.startswith(choice, start)
  end, choices)
  table.sort(choices)
  return choices
end

return M
