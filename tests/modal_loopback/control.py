"""Workspaces, environments, apps, functions, classes: what is defined, under which name."""

from __future__ import annotations

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2 as pb

from tests.modal_loopback.world import ENVIRONMENT, GPUS, App, Function, World


class Control:
    def __init__(self, world: World) -> None:
        self._world = world

    # the workspace

    async def client_hello(self, _: Empty) -> pb.ClientHelloResponse:
        return pb.ClientHelloResponse(image_builder_version=self._world.image_builder)

    async def token_flow_create(self, _: pb.TokenFlowCreateRequest) -> pb.TokenFlowCreateResponse:
        return pb.TokenFlowCreateResponse(
            token_flow_id="tf-1",
            web_url="https://modal.invalid/token-flow/tf-1",
            wait_secret="s",
            code="ABCD",
        )

    async def token_flow_wait(self, _: pb.TokenFlowWaitRequest) -> pb.TokenFlowWaitResponse:
        """The author has signed in already."""
        token_id, token_secret = next(iter(self._world.tokens.items()))
        return pb.TokenFlowWaitResponse(
            token_id=token_id, token_secret=token_secret, workspace_username=self._world.workspace
        )

    async def token_info_get(self, _: pb.TokenInfoGetRequest) -> pb.TokenInfoGetResponse:
        return pb.TokenInfoGetResponse(
            token_id=next(iter(self._world.tokens), ""),
            workspace_id="ws-" + "0" * 22,
            workspace_name=self._world.workspace,
            user_identity=pb.UserIdentity(user_id="us-" + "0" * 22, username=self._world.workspace),
        )

    async def workspace_name_lookup(self, _: Empty) -> pb.WorkspaceNameLookupResponse:
        return pb.WorkspaceNameLookupResponse(
            workspace_name=self._world.workspace, username=self._world.workspace
        )

    async def workspace_settings(self, _: Empty) -> pb.WorkspaceSettingsResponse:
        return pb.WorkspaceSettingsResponse(
            default_environment_name=ENVIRONMENT, image_builder_version=self._world.image_builder
        )

    async def workspace_billing_rates(
        self, _: pb.WorkspaceBillingRatesRequest
    ) -> pb.WorkspaceBillingRatesResponse:
        lines = [f"{resource}: {dollars}" for resource, dollars in self._world.rates.items()]
        return pb.WorkspaceBillingRatesResponse(rates=self._world.rates, formatted="\n".join(lines))

    async def environment_get_or_create(
        self, request: pb.EnvironmentGetOrCreateRequest
    ) -> pb.EnvironmentGetOrCreateResponse:
        name = request.deployment_name or ENVIRONMENT
        if name not in self._world.environments:
            if not request.object_creation_type:
                raise GRPCError(Status.NOT_FOUND, f"Environment '{name}' not found")
            self._world.environments[name] = self._world.new_id("en")
        settings = pb.EnvironmentSettings(image_builder_version=self._world.image_builder)
        return pb.EnvironmentGetOrCreateResponse(
            environment_id=self._world.environments[name],
            metadata=pb.EnvironmentMetadata(name=name, settings=settings),
        )

    async def environment_create(self, request: pb.EnvironmentCreateRequest) -> Empty:
        if request.name in self._world.environments:
            raise GRPCError(Status.ALREADY_EXISTS, f"Environment '{request.name}' exists already")
        self._world.environments[request.name] = self._world.new_id("en")
        return Empty()

    async def environment_list(self, _: Empty) -> pb.EnvironmentListResponse:
        return pb.EnvironmentListResponse(
            items=[
                pb.EnvironmentListItem(name=name, environment_id=made, default=name == ENVIRONMENT)
                for name, made in self._world.environments.items()
            ]
        )

    def _environment(self, name: str) -> str:
        name = name or ENVIRONMENT
        if name not in self._world.environments:
            raise GRPCError(Status.NOT_FOUND, f"Environment '{name}' not found")
        return name

    # apps

    def _new_app(self, name: str, environment: str, state: pb.AppState.ValueType) -> App:
        app = App(self._world.new_id("ap"), name, self._environment(environment), self._world.now(), state)
        self._world.apps[app.id] = app
        return app

    def _app(self, key: str) -> App:
        return self._world.find(self._world.apps, key, "App")

    async def app_create(self, request: pb.AppCreateRequest) -> pb.AppCreateResponse:
        app = self._new_app(request.description, request.environment_name, request.app_state)
        app.tags.update(request.tags)
        return pb.AppCreateResponse(app_id=app.id, app_page_url=f"http://127.0.0.1/apps/{app.id}")

    async def app_get_or_create(self, request: pb.AppGetOrCreateRequest) -> pb.AppGetOrCreateResponse:
        app = self._world.deployed(request.app_name, self._environment(request.environment_name))
        if app is None:
            if not request.object_creation_type:
                raise GRPCError(Status.NOT_FOUND, f"App '{request.app_name}' not found")
            app = self._new_app(request.app_name, request.environment_name, pb.APP_STATE_DEPLOYED)
        return pb.AppGetOrCreateResponse(app_id=app.id)

    async def app_get_by_deployment_name(
        self, request: pb.AppGetByDeploymentNameRequest
    ) -> pb.AppGetByDeploymentNameResponse:
        environment = self._environment(request.environment_name)
        answer = pb.AppGetByDeploymentNameResponse(environment_name=environment)
        if app := self._world.deployed(request.name, environment):
            answer.app_id = app.id
            answer.lifecycle.CopyFrom(_lifecycle(app))
            return answer
        for app in self._world.apps.values():
            if app.over and app.deployed and (app.name, app.environment) == (request.name, environment):
                answer.previous_app_id = app.id
                answer.lifecycle.CopyFrom(_lifecycle(app))
        return answer

    async def app_get_layout(self, request: pb.AppGetLayoutRequest) -> pb.AppGetLayoutResponse:
        return pb.AppGetLayoutResponse(app_layout=self._world.layout(self._app(request.app_id)))

    async def app_get_lifecycle(self, request: pb.AppGetLifecycleRequest) -> pb.AppGetLifecycleResponse:
        return pb.AppGetLifecycleResponse(lifecycle=_lifecycle(self._app(request.app_id)))

    async def app_heartbeat(self, request: pb.AppHeartbeatRequest) -> Empty:
        self._app(request.app_id)
        return Empty()

    async def app_publish(self, request: pb.AppPublishRequest) -> pb.AppPublishResponse:
        app = self._app(request.app_id)
        app.functions, app.classes = dict(request.function_ids), dict(request.class_ids)
        app.tags.update(request.tags)
        app.state = request.app_state
        if request.name:
            app.name = request.name
        if app.state == pb.APP_STATE_DEPLOYED:
            app.version += 1
            app.deployed = self._world.now()
        return pb.AppPublishResponse(url=f"http://127.0.0.1/apps/{app.id}", deployed_at=app.deployed)

    async def app_client_disconnect(self, request: pb.AppClientDisconnectRequest) -> Empty:
        app = self._app(request.app_id)
        if app.state not in {pb.APP_STATE_DEPLOYED, pb.APP_STATE_DETACHED}:
            self._stop(app)
        return Empty()

    async def app_stop(self, request: pb.AppStopRequest) -> Empty:
        self._stop(self._app(request.app_id))
        return Empty()

    def _stop(self, app: App) -> None:
        if not app.over:
            app.state, app.stopped = pb.APP_STATE_STOPPED, self._world.now()

    async def app_list(self, request: pb.AppListRequest) -> pb.AppListResponse:
        environment = self._environment(request.environment_name)
        alive = self._world.alive()
        return pb.AppListResponse(
            apps=[
                pb.AppListResponse.AppListItem(
                    app_id=app.id,
                    description=app.name,
                    name=app.name if app.deployed else "",
                    state=app.state,
                    created_at=app.created,
                    stopped_at=app.stopped,
                    n_running_tasks=sum(container.function.app is app for container in alive),
                )
                for app in self._world.apps.values()
                if app.environment == environment
            ]
        )

    async def app_set_tags(self, request: pb.AppSetTagsRequest) -> Empty:
        self._app(request.app_id).tags = dict(request.tags)
        return Empty()

    async def app_get_tags(self, request: pb.AppGetTagsRequest) -> pb.AppGetTagsResponse:
        return pb.AppGetTagsResponse(tags=self._app(request.app_id).tags)

    def _deployed(self, name: str, environment: str) -> App:
        environment = self._environment(environment)
        if app := self._world.deployed(name, environment):
            return app
        raise GRPCError(Status.NOT_FOUND, f"App '{name}' not found in environment '{environment}'")

    # functions and classes

    def _function(self, key: str) -> Function:
        return self._world.find(self._world.functions, key, "Function")

    async def function_precreate(self, request: pb.FunctionPrecreateRequest) -> pb.FunctionPrecreateResponse:
        key = request.existing_function_id or self._world.new_id("fu")
        made = pb.Function(
            function_name=request.function_name,
            function_type=request.function_type,
            method_definitions=request.method_definitions,
            supported_input_formats=request.supported_input_formats,
            supported_output_formats=request.supported_output_formats,
        )
        return pb.FunctionPrecreateResponse(
            function_id=key, handle_metadata=_metadata(key, made, request.app_id)
        )

    async def function_create(self, request: pb.FunctionCreateRequest) -> pb.FunctionCreateResponse:
        app = self._app(request.app_id)
        made = request.function
        self._check_gpu(made)
        key = request.existing_function_id or self._world.new_id("fu")
        metadata = _metadata(key, made, app.id)
        known = self._world.functions.get(key)
        if known is None:
            known = self._world.functions[key] = Function(key, app, made, metadata)
        known.definition, known.metadata = made, metadata
        known.autoscaler.Clear()  # redeploying resets what `autoscaler.update` set, as Modal documents
        for variant in self._world.variants.values():
            if variant.base is known:
                variant.definition, variant.metadata = _with_options(made, variant.options), metadata
        return pb.FunctionCreateResponse(
            function_id=key, function=made, handle_metadata=metadata, function_data=_data(known)
        )

    async def function_get(self, request: pb.FunctionGetRequest) -> pb.FunctionGetResponse:
        app = self._deployed(request.app_name, request.environment_name)
        if request.object_tag not in app.functions:
            raise GRPCError(
                Status.NOT_FOUND, f"Function '{request.object_tag}' not found in app '{app.name}'"
            )
        function = self._function(app.functions[request.object_tag])
        return pb.FunctionGetResponse(
            function_id=function.id, handle_metadata=function.metadata, function=_data(function)
        )

    async def function_get_by_id(self, request: pb.FunctionGetByIdRequest) -> pb.FunctionGetByIdResponse:
        function = self._function(request.function_id)
        return pb.FunctionGetByIdResponse(handle_metadata=function.metadata, function=_data(function))

    async def class_create(self, request: pb.ClassCreateRequest) -> pb.ClassCreateResponse:
        self._app(request.app_id)
        key = request.existing_class_id or self._world.new_id("cs")
        return pb.ClassCreateResponse(class_id=key, handle_metadata=pb.ClassHandleMetadata())

    async def class_get(self, request: pb.ClassGetRequest) -> pb.ClassGetResponse:
        app = self._deployed(request.app_name, request.environment_name)
        if request.object_tag not in app.classes:
            raise GRPCError(Status.NOT_FOUND, f"Class '{request.object_tag}' not found in app '{app.name}'")
        service = self._function(app.functions[request.object_tag + ".*"])
        return pb.ClassGetResponse(
            class_id=app.classes[request.object_tag],
            handle_metadata=pb.ClassHandleMetadata(
                class_function_id=service.id, class_function_metadata=service.metadata
            ),
        )

    async def function_bind_params(
        self, request: pb.FunctionBindParamsRequest
    ) -> pb.FunctionBindParamsResponse:
        base = self._function(request.function_id)
        options = request.function_options.SerializeToString(deterministic=True)
        key = (base.id, request.serialized_params, options)
        variant = self._world.variants.get(key)
        if variant is None:
            made = _with_options(base.definition, request.function_options)
            self._check_gpu(made)
            variant = Function(
                self._world.new_id("fu"),
                base.app,
                made,
                base.metadata,
                base,
                request.serialized_params,
                request.function_options,
            )
            self._world.variants[key] = self._world.functions[variant.id] = variant
        return pb.FunctionBindParamsResponse(bound_function_id=variant.id, handle_metadata=variant.metadata)

    def _check_gpu(self, made: pb.Function) -> None:
        if (gpu := made.resources.gpu_config.gpu_type) and gpu not in GPUS:
            raise GRPCError(Status.INVALID_ARGUMENT, f"Invalid GPU type: {gpu}")

    async def function_update_scheduling_params(
        self, request: pb.FunctionUpdateSchedulingParamsRequest
    ) -> pb.FunctionUpdateSchedulingParamsResponse:
        function = self._function(request.function_id)
        function.autoscaler.MergeFrom(request.settings)
        return pb.FunctionUpdateSchedulingParamsResponse(current_settings=function.settings)

    async def function_get_current_stats(
        self, request: pb.FunctionGetCurrentStatsRequest
    ) -> pb.FunctionStats:
        function = self._function(request.function_id)
        containers = function.containers.values()
        return pb.FunctionStats(
            backlog=len(function.pending),
            num_total_tasks=len(containers),
            num_running_inputs=sum(len(container.inputs) for container in containers),
        )

    async def function_get_time_range_stats(
        self, request: pb.FunctionGetTimeRangeStatsRequest
    ) -> pb.FunctionGetTimeRangeStatsResponse:
        """Of containers alone."""
        function = self._function(request.function_id)
        since, until = (moment.ToNanoseconds() / 1e9 for moment in (request.since, request.until))
        begun, crashed = (
            sum(since <= at < until for at in times) for times in (function.begun, function.crashed)
        )
        return pb.FunctionGetTimeRangeStatsResponse(
            since=request.since,
            until=request.until,
            container_started_count=begun,
            container_error_count=crashed,
            container_total_count=begun,
        )

    # containers, as the client sees them

    async def task_list(self, request: pb.TaskListRequest) -> pb.TaskListResponse:
        return pb.TaskListResponse(
            tasks=[
                pb.TaskStats(
                    task_id=container.id,
                    app_id=container.function.app.id,
                    app_description=container.function.app.name,
                    started_at=container.started,
                    enqueued_at=container.enqueued,
                )
                for container in self._world.alive()
                if request.app_id in {"", container.function.app.id}
                and (request.environment_name or ENVIRONMENT) == container.function.app.environment
            ]
        )

    async def task_get_info(self, request: pb.TaskGetInfoRequest) -> pb.TaskGetInfoResponse:
        container = self._world.find(self._world.containers, request.task_id, "Container")
        info = pb.TaskInfo(
            id=container.id,
            started_at=container.started,
            finished_at=container.finished,
            enqueued_at=container.enqueued,
            gpu_type=container.function.gpu,
            gpu_config=container.function.definition.resources.gpu_config,
        )
        return pb.TaskGetInfoResponse(app_id=container.function.app.id, info=info)

    async def container_stop(self, request: pb.ContainerStopRequest) -> pb.ContainerStopResponse:
        """The input that runs there is run again elsewhere, or with `graceful` to its end, as Modal documents."""
        container = self._world.find(self._world.containers, request.task_id, "Container")
        if request.graceful:
            container.stop()
        else:
            container.preempt()
        return pb.ContainerStopResponse()


def _metadata(key: str, made: pb.Function, app: str) -> pb.FunctionHandleMetadata:
    def method(name: str, definition: pb.MethodDefinition) -> pb.FunctionHandleMetadata:
        return pb.FunctionHandleMetadata(
            function_name=definition.function_name,
            function_type=definition.function_type,
            is_method=True,
            use_method_name=name,
            function_schema=definition.function_schema,
            supported_input_formats=definition.supported_input_formats,
            supported_output_formats=definition.supported_output_formats,
            app_id=app,
        )

    return pb.FunctionHandleMetadata(
        function_name=made.function_name,
        function_type=made.function_type,
        definition_id=f"de-{key}",
        class_parameter_info=made.class_parameter_info,
        function_schema=made.function_schema,
        app_id=app,
        method_handle_metadata={
            name: method(name, method_definition)
            for name, method_definition in made.method_definitions.items()
        },
        supported_input_formats=made.supported_input_formats,
        supported_output_formats=made.supported_output_formats,
    )


def _data(function: Function) -> pb.FunctionData:
    ranked = pb.FunctionData.RankedFunction(rank=0, function=function.definition)
    return pb.FunctionData(ranked_functions=[ranked])


def _with_options(made: pb.Function, options: pb.FunctionOptions) -> pb.Function:
    """The definition under an option set, as `Cls.with_options` documents its options."""
    bound = pb.Function()
    bound.CopyFrom(made)
    bound.resources.MergeFrom(options.resources)
    if options.HasField("retry_policy"):
        bound.retry_policy.CopyFrom(options.retry_policy)
    for name in (
        "concurrency_limit",
        "timeout_secs",
        "task_idle_timeout_secs",
        "warm_pool_size",
        "max_concurrent_inputs",
        "target_concurrent_inputs",
    ):
        if options.HasField(name):
            setattr(bound, name, getattr(options, name))
    # the definition's autoscaler settings would win over the older fields otherwise
    scaler = bound.autoscaler_settings
    if options.HasField("concurrency_limit"):
        scaler.max_containers = options.concurrency_limit
    if options.HasField("task_idle_timeout_secs"):
        scaler.scaledown_window = options.task_idle_timeout_secs
    if options.HasField("warm_pool_size"):
        scaler.min_containers = options.warm_pool_size
    if options.replace_secret_ids:
        del bound.secret_ids[:]
    bound.secret_ids.extend(options.secret_ids)
    if options.replace_volume_mounts:
        del bound.volume_mounts[:]
    bound.volume_mounts.extend(options.volume_mounts)
    return bound


def _lifecycle(app: App) -> pb.AppLifecycle:
    return pb.AppLifecycle(
        app_state=app.state,
        created_at=app.created,
        deployed_at=app.deployed,
        version=app.version,
        stopped_at=app.stopped,
    )
